#!/usr/bin/env bash
# test.sh CMAKE BUILD COMPILER: installs the build elsewhere, moves it, and builds and runs a project against it, by find_package and by
# pkg-config; and the C++ that docs/ shows. test.sh CMAKE BUILD COMPILER alone: compiles each public header by itself instead.
set -euo pipefail
cmake=$1 build=$2 compiler=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/installed"
if [ "${4:-}" = alone ]; then
  include=$(dirname "$(dirname "$(find "$work/installed" -path '*/tensor/tensor.h')")")
  sed 's/#include "\(.*\)"/\1/' "$build/public_headers.inc" | xargs -P 2 -I{} sh -c 'echo "#include \"{}\"" | '"$compiler -std=c++20 -Wall -Wextra -Werror -I $include"' -fsyntax-only -x c++ - || { echo "{} does not compile alone" >&2; exit 1; }'
  exit
fi
for i in $(seq 300); do echo "and it was so, $i."; done >"$work/text.txt"
mkdir "$work/build"
awk '/^```cpp$/ {inside = 1; print "{"; next} /^```$/ && inside {inside = 0; print "}"; next} inside' "$here"/../../docs/*.md >"$work/build/blocks.inc"
[ "$(grep -c '^{$' "$work/build/blocks.inc")" -ge 2 ] || { echo "expected blocks of C++ in docs, got fewer than 2" >&2; exit 1; }
cp "$build/public_headers.inc" "$work/build"
"$cmake" -S "$here" -B "$work/build" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$work/installed" >/dev/null
"$cmake" --build "$work/build"
"$work/build/consumer" "$work"
cp "$work/text.txt" "$work/kjv.txt"
(cd "$work" && build/documented >documented.log 2>&1) || { cat "$work/documented.log" >&2; exit 1; }
config=$(find "$work/installed" -name spillway.pc)
flags=$(PKG_CONFIG_PATH=$(dirname "$config") pkg-config --cflags --libs spillway)
# shellcheck disable=SC2086  # flags are words
"$compiler" "$here/consumer.cc" $flags -fsyntax-only
