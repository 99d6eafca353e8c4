#!/usr/bin/env bash
# Whether the emulator's tensor cores give every lane what NVIDIA's CuTe says it gets: mma.m16n8k16 and ldmatrix, by CuTe's own traits.
# cute_fragments.sh [FOLDER]: where CUTLASS's include folder is (or CUTLASS_INCLUDE); without one it is taken from PyPI (nvidia-cutlass) into
# a folder that is gone afterwards. Needs CUDA's headers (CUDA_HOME, or beside nvcc). Exits with 0 where all are equal, 1 where one is not,
# 3 where something is missing.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
missing() { echo "cute_fragments: $1" >&2; exit 3; }

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
cuda=${CUDA_HOME:-$(dirname "$(dirname "$(readlink -f "$nvcc")")")}
[ -f "$cuda/include/cuda_runtime.h" ] || missing "expected CUDA's headers in $cuda/include: set CUDA_HOME"
cutlass=${1:-${CUTLASS_INCLUDE:-}}
if [ -z "$cutlass" ]; then
  python3 -m pip install -q --no-deps --root-user-action=ignore --target "$folder/cutlass" nvidia-cutlass || missing "pip could not install nvidia-cutlass: give a folder"
  cutlass=$folder/cutlass/cutlass_library/source/include
fi
[ -f "$cutlass/cute/tensor.hpp" ] || missing "expected cute/tensor.hpp in $cutlass"

compile() { g++ -std=c++20 -O1 -c "$@"; }
for source in "$root"/tests/peers/fragments_emulated.cc "$root"/tests/emulated_cuda/*.cc; do
  compile -I"$root" -I"$root/src" -I"$root/tests/emulated_cuda" "$source" -o "$folder/$(basename "$source" .cc).o"
done
compile -w -I"$root" -isystem "$cutlass" -isystem "$cuda/include" -isystem "$cuda/include/cccl" "$root/tests/peers/fragments_cute.cc" -o "$folder/fragments_cute.o"
g++ "$folder"/*.o -pthread -o "$folder/fragments"
SPILLWAY_EMULATED_GPUS=1 "$folder/fragments"
