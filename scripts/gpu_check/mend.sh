#!/usr/bin/env bash
# Mends a kernel on a node with a GPU, without our libraries' headers: compiles CUDA sources of a changed tree for this GPU and links the
# archive's programs with them. Lies in the archive of `scripts/bundle.sh --check`; needs nvcc, of the CUDA that the archive was made with,
# and a C++ compiler.
#   ./mend.sh TREE src/kernels/rows/norm_cuda.cu ...    then ./gpu_check.sh, or bin/test_kernels --gtest_filter=...
# Names the programs that have changed. Those that were there before are libexec/*.before.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
parts=$here/share/mend
if [ $# -lt 2 ] || [ ! -d "$1" ]; then
  echo "usage: mend.sh TREE FILE.cu...    FILE as seen from TREE" >&2
  exit 2
fi
[ -e "$parts/nvcc.flags" ] || { echo "mend.sh: expected share/mend in the archive, got none: it was made without CUDA" >&2; exit 3; }
nvcc=$(command -v nvcc || ls -d /usr/local/cuda*/bin/nvcc 2>/dev/null | head -n 1)
[ "$nvcc" ] || { echo "mend.sh: expected nvcc on this node, got none in PATH and in /usr/local/cuda*/bin" >&2; exit 3; }
tree=$(cd "$1" && pwd)
shift
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mapfile -t flags < <(sed "s|@TREE@|$tree|" "$parts/nvcc.flags")
for file; do
  "$nvcc" "${flags[@]}" "-arch=${MEND_ARCH:-native}" -x cu -c "$tree/$file" -o "$made/$(basename "$file").o" &
done
for job in $(jobs -p); do wait "$job"; done

changed=0
for link in "$parts"/*.link; do
  program=$(basename "$link" .link) objects=()
  mapfile -t words < <(sed "s|@HERE@|$parts|; s|@LIB@|$here/lib|" "$link")
  # An object takes the place of the one of its name in a static library, if it comes before that.
  for file; do
    for word in "${words[@]}"; do
      [[ $word == *.a ]] && ar t "$word" | grep -qxF "$(basename "$file").o" && objects+=("$made/$(basename "$file").o") && break
    done
  done
  [ ${#objects[@]} -gt 0 ] || continue
  "${CXX:-c++}" "${objects[@]}" "${words[@]}" -Wl,-rpath-link,"$here/lib" -o "$here/libexec/$program.new"
  [ -e "$here/libexec/$program.before" ] || cp "$here/libexec/$program" "$here/libexec/$program.before"
  mv "$here/libexec/$program.new" "$here/libexec/$program"
  echo "mended: bin/$program"
  changed=1
done
[ $changed -eq 1 ] || { echo "mend.sh: expected a source that a program has, got $*" >&2; exit 1; }
