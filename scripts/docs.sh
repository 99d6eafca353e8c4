#!/usr/bin/env bash
# Writes docs/commands.md anew from the program's option table.
set -euo pipefail
cd "$(dirname "$0")/.."
"${1:-build/release/spillway}" help markdown >docs/commands.md.new
mv docs/commands.md.new docs/commands.md
