#!/usr/bin/env bash
# test.sh CMAKE BUILD COMPILER: installs the build elsewhere, moves it, and builds and runs a project against it, by find_package and by
# pkg-config.
set -euo pipefail
cmake=$1 build=$2 compiler=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/installed"
for i in $(seq 300); do echo "and it was so, $i."; done >"$work/text.txt"
"$cmake" -S "$here" -B "$work/build" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$work/installed" >/dev/null
"$cmake" --build "$work/build"
"$work/build/consumer" "$work"
config=$(find "$work/installed" -name spillway.pc)
flags=$(PKG_CONFIG_PATH=$(dirname "$config") pkg-config --cflags --libs spillway)
# shellcheck disable=SC2086  # flags are words
"$compiler" "$here/consumer.cc" $flags -fsyntax-only
