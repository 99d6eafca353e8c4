#!/usr/bin/env bash
# Makes one archive that runs without installation and without root: the program, its libraries, libstdc++ and a C library with its
# loader, a modulefile and an Apptainer recipe. Unpack it anywhere and run bin/spillway. MPI is not in it: the system's is loaded.
#   scripts/bundle.sh [FOLDER]    leaves FOLDER/spillway-VERSION-ARCH.tar.gz (default: build)
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-build}
program=${SPILLWAY_BUILD:-build/release}/spillway
if [ -z "${SPILLWAY_BUILD:-}" ]; then
  scripts/setup.sh
  source scripts/steps.sh
  build release spillway
fi
version=$("$program" --version | awk '{print $2}')
name=spillway-$version-$(uname -m)
mkdir -p "$out"
stage=$(mktemp -d "$out/bundle.XXXXXX")
trap 'rm -rf "$stage"' EXIT
root=$stage/$name
mkdir -p "$root"/{bin,libexec,lib/glibc,share}

cp "$program" "$root/libexec/spillway"
plugin=$(dirname "$program")/libspillway_mpi.so
[ ! -e "$plugin" ] || cp "$plugin" "$root/lib/"

# What the loader would load, MPI's own libraries aside; the C library's family apart from the rest.
libraries() { ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\// {print $1}'; }
libraries "$program" | sort -u | while read -r library; do
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
strip "$root/bin/spillway" "$root/libexec/spillway"
cp LICENSE README.md "$root/share/"

cat >"$root/share/modulefile" <<MODULE
#%Module1.0
## Copy or link as spillway/$version into a folder of MODULEPATH; with "module use FOLDER" any folder will do.
module-whatis "Spillway $version: trains models that do not fit"
set here [file dirname [file dirname [file normalize \$ModulesCurrentModulefile]]]
prepend-path PATH \$here/bin
MODULE

cat >"$root/share/spillway.def" <<RECIPE
# apptainer build spillway.sif share/spillway.def, in the unpacked folder; then: apptainer run spillway.sif train --help
Bootstrap: scratch
%files
  . /opt/spillway
%environment
  export PATH=/opt/spillway/bin
%runscript
  exec /opt/spillway/bin/spillway "\$@"
RECIPE

archive=$out/$name.tar.gz
tar -C "$stage" --owner=0 --group=0 --sort=name -czf "$archive.part" "$name"
mv "$archive.part" "$archive"
echo "$archive: $(du -h "$archive" | cut -f1)"
