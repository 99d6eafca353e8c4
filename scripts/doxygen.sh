#!/usr/bin/env bash
cd "$(dirname "$0")/.." && mkdir -p build && doxygen Doxyfile && echo "build/doxygen/html/index.html"
