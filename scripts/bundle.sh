#!/usr/bin/env bash
# Makes one archive that runs without installation and without root: the program, its libraries, libstdc++ and a C library with its
# loader, a modulefile and an Apptainer recipe. Unpack it anywhere and run bin/spillway. MPI and CUDA's libraries are not in it: the
# system's are loaded. With nvcc it has code for A100, H100 and H200, and PTX for what comes after.
#   scripts/bundle.sh [FOLDER]            leaves FOLDER/spillway-VERSION-ARCH.tar.gz (default: build)
#   scripts/bundle.sh --check [FOLDER]    FOLDER/spillway-check-VERSION-ARCH.tar.xz: with it the tests and benches of GPUs, and gpu_check.sh
#                                         to run them on a node that has one (docs/gpus.md); with the Python module for PYTHON (default:
#                                         python3; name the version that the node has), and with what mends a kernel there (mend.sh)
set -euo pipefail
cd "$(dirname "$0")/.."

check=
if [ "${1-}" = --check ]; then
  check=-check
  shift
fi
out=${1:-build}
built=${SPILLWAY_BUILD:-build/bundle}
programs=(spillway)
if [ -n "$check" ]; then
  # The rooms with tests that skip where there is no GPU, and the benches of GPUs.
  for room in $(grep -v '^#' tests/expected_skips.txt | cut -d/ -f1 | sort -u); do programs+=("tests/test_$room"); done
  for bench in bench/*_cuda.cc; do
    [ ! -e "$bench" ] || programs+=("bench/bench_$(basename "$bench" .cc)")
  done
fi
if [ -z "${SPILLWAY_BUILD:-}" ]; then
  scripts/setup.sh ${check:+--tests}
  source scripts/steps.sh
  if [ -n "$check" ]; then
    configuring=(-DPython_EXECUTABLE="$(command -v "${PYTHON:-python3}")")
    build bundle "${programs[@]##*/}" spillway_python spillway_python_stub spillway_in_package spillway_library
  else
    build bundle spillway
  fi
fi
program=$built/spillway
version=$("$program" --version | awk '{print $2}')
name=spillway$check-$version-$(uname -m)
mkdir -p "$out"
stage=$(mktemp -d "$out/bundle.XXXXXX")
trap 'rm -rf "$stage"' EXIT
root=$stage/$name
mkdir -p "$root"/{bin,libexec,lib/glibc,share}

for each in "${programs[@]}"; do [ ! -e "$built/$each" ] || cp "$built/$each" "$root/libexec/"; done  # there may be no CUDA, or no benches
plugin=$(dirname "$program")/libspillway_mpi.so
[ ! -e "$plugin" ] || cp "$plugin" "$root/lib/"

# What the loader would load, MPI's own libraries aside; the C library's family apart from the rest.
libraries() { for each; do ldd "$each"; done | awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\// {print $1}'; }
libraries "$root"/libexec/* | sort -u | while read -r library; do
  case $(basename "$library") in
    ld-linux*) cp -L "$library" "$root/lib/glibc/ld.so" ;;
    libc.so.*|libm.so.*|libpthread.so.*|libdl.so.*|librt.so.*|libresolv.so.*|libutil.so.*) cp -L "$library" "$root/lib/glibc/" ;;
    *) cp -L "$library" "$root/lib/" ;;
  esac
done
# Old names of what is one library today: plug-ins built for an older C library ask for them.
libc=$(libraries "$program" | grep '/libc\.so\.6$')
for old in libpthread.so.0 libdl.so.2 librt.so.1 libutil.so.1 libresolv.so.2; do
  [ ! -e "$(dirname "$libc")/$old" ] || cp -L "$(dirname "$libc")/$old" "$root/lib/glibc/"
done
"${CXX:-c++}" -std=c++20 -O2 -static -o "$root/bin/spillway" scripts/bundle/start.cc
strip "$root"/bin/* "$root"/libexec/*
for each in $(cd "$root/libexec" && ls -I spillway); do ln "$root/bin/spillway" "$root/bin/$each"; done
cp -r LICENSE README.md CHANGELOG.md CITATION.cff docs "$root/share/"
mkdir -p "$root/share/man/man1" "$root/share/bash-completion/completions"
"$program" help man >"$root/share/man/man1/spillway.1"
"$program" help completion >"$root/share/bash-completion/completions/spillway"
if [ -n "$check" ]; then
  cp scripts/gpu_check.sh scripts/gpu_check/mend.sh "$root/"
  mkdir -p "$root/share/gpu_check" "$root/share/python_tests"
  cp scripts/gpu_check/{first,rest,tests,trainings,models}.sh scripts/gpu_check/tables.py "$root/share/gpu_check/"
  cp bench/gpu_peers.py bench/torch_steps.py tests/expected_skips.txt "$root/share/"
  cp python/tests/{conftest,test_gpu}.py "$root/share/python_tests/"
  # The archive also has the library that records kernels and copies with the node's CUPTI, the parts from which programs are linked again,
  # and the Python module.
  cuda=$(sed -n 's/^CUDAToolkit_CUPTI_INCLUDE_DIR[^=]*=//p' "$built/CMakeCache.txt")
  if [ -e "$cuda/cupti.h" ]; then
    "${CXX:-c++}" -std=c++20 -O2 -shared -fPIC -fvisibility=hidden -static-libstdc++ -static-libgcc -isystem "$cuda" \
      -o "$root/lib/libkernel_times.so" scripts/gpu_check/kernel_times.cc
  else
    echo "bundle: no kernel times in the archive: expected cupti.h in CUDA's headers, got none in ${cuda:-(no CUDA)}" >&2
  fi
  if grep -q '^CMAKE_CUDA_COMPILER:' "$built/CMakeCache.txt"; then
    python3 scripts/bundle/mend_parts.py "$built" "$root/share/mend" spillway tests/test_device tests/test_kernels tests/test_optim
  fi
  if SPILLWAY_BUILD=$built scripts/wheel.sh "$stage/wheel" >/dev/null; then
    python3 -m zipfile -e "$stage"/wheel/*.whl "$root/share/python" && chmod +x "$root"/share/python/spillway/bin/*
    basename "$stage"/wheel/*.whl | cut -d- -f3- | sed 's/\.whl//' >"$root/share/python/for"
  else
    echo "bundle: no Python module in the archive, see above" >&2
  fi
  git describe --always --dirty --match '' >"$root/share/revision" 2>/dev/null || echo unknown >"$root/share/revision"
fi

cat >"$root/share/modulefile" <<MODULE
#%Module1.0
## Copy or link as spillway/$version into a folder of MODULEPATH; with "module use FOLDER" any folder will do.
module-whatis "Spillway $version: trains models that do not fit"
set here [file dirname [file dirname [file normalize \$ModulesCurrentModulefile]]]
prepend-path PATH \$here/bin
prepend-path MANPATH \$here/share/man
MODULE

cp packaging/spillway.def "$root/share/"

archive=$out/$name.tar.gz pack=(gzip -9)
# The tests' programs have most of their bytes in common: with a dictionary that holds all of them a twelfth is left (4 GiB, some minutes).
[ -z "$check" ] || archive=$out/$name.tar.xz pack=(xz --lzma2=preset=6,dict=384MiB)
tar -C "$stage" --owner=0 --group=0 --sort=name -cf - "$name" | "${pack[@]}" >"$archive.part"
mv "$archive.part" "$archive"
echo "$archive: $(du -h "$archive" | cut -f1)"
