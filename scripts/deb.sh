#!/usr/bin/env bash
# Makes Debian packages for this release of Debian, from the install tree: spillway, spillway-mpi (where MPI's headers are) and libspillway-dev.
#   scripts/deb.sh [FOLDER]    leaves FOLDER/*.deb (default: build/deb) and prints their paths; `apt-get install ./spillway_….deb` installs one
# SPILLWAY_BUILD: a build folder that has the program and the library already (else build/deb-build is made).
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-build/deb}
built=${SPILLWAY_BUILD:-build/deb-build}
for each in cpack dpkg-shlibdeps file gzip; do
  command -v $each >/dev/null || {
    echo "deb: expected $each, got none: apt-get install cmake dpkg-dev file gzip, on Debian or a relative" >&2
    exit 3
  }
done
if [ -z "${SPILLWAY_BUILD:-}" ]; then
  scripts/setup.sh >&2
  cmake -S . -B "$built" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSPILLWAY_TESTS=OFF -DSPILLWAY_BENCH=OFF -DSPILLWAY_PYTHON=OFF \
    -DCMAKE_CUDA_ARCHITECTURES="80-real;90" >&2
  cmake --build "$built" --target spillway spillway_library >&2
fi

mkdir -p "$out"
stage=$(mktemp -d "$out/deb.XXXXXX")
trap 'rm -rf "$stage"' EXIT
(umask 022 && cpack -G DEB --config "$built/CPackConfig.cmake" -B "$(realpath "$stage")") >"$stage/said.txt" 2>&1 || {
  cat "$stage/said.txt" >&2
  exit 1
}
for each in "$stage"/*.deb; do
  dpkg-deb --raw-extract "$each" "$stage/tree"
  # CPack's scripts call ldconfig, which dpkg's own trigger does.
  rm -f "$stage"/tree/DEBIAN/{postinst,postrm}
  dpkg-deb --root-owner-group -Zxz -z2 --build "$stage/tree" "$stage/package" >/dev/null
  mv "$stage/package" "$out/$(basename "$each")"
  rm -rf "$stage/tree"
  echo "$out/$(basename "$each")"
done
