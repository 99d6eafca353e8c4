#!/usr/bin/env bash
# deb.sh BUILD: makes Debian packages of this build, installs them under a root of their own, trains two steps with what lies there, to the
# numbers of the build's own program, and takes them away again.
set -euo pipefail
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C OMP_NUM_THREADS=1 XDG_CACHE_HOME=$work/cache
fail() { echo "$1" >&2; exit 1; }

SPILLWAY_BUILD=$build "$source/scripts/deb.sh" "$work/packages"
[ "$(ls "$work/packages" | grep -cv '\.deb$')" -eq 0 ] || fail "expected packages alone, got $(ls "$work/packages")"
program=$(ls "$work"/packages/spillway_*.deb)
field() { dpkg-deb -f "$1" "$2"; }
[ "$(field "$program" Package)" = spillway ] || fail "expected the package spillway, got $(field "$program" Package)"
[ "$(field "$program" Version)" = "$("$build/spillway" --version | cut -d' ' -f2)-1" ] || fail "expected the program's version, got $(field "$program" Version)"
grep -q 'libc6 (>= ' <<<"$(field "$program" Depends)" || fail "expected what the program needs, got $(field "$program" Depends)"
! grep -qi mpi <<<"$(field "$program" Depends)" || fail "expected no MPI, got $(field "$program" Depends)"

root=$work/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
touch "$root/var/lib/dpkg/status"
if [ "$(id -u)" -eq 0 ]; then
  dpkg --root="$root" --force-depends --install "$work"/packages/*.deb >"$work/said.txt" 2>&1 || fail "$(cat "$work/said.txt")"
else
  for each in "$work"/packages/*.deb; do dpkg-deb -x "$each" "$root"; done
fi
doc=$root/usr/share/doc/spillway
for each in "$doc/copyright" "$doc/changelog.gz" "$doc/changelog.Debian.gz" "$doc/docs/getting-started.md" "$root/usr/share/man/man1/spillway.1.gz" \
  "$root/usr/share/bash-completion/completions/spillway" "$root"/usr/lib/libspillway.so.0 "$root/usr/include/spillway/trainer/trainer.h"; do
  [ -e "$each" ] || fail "expected $each, got none"
done
[ ! -e "$build/libspillway_mpi.so" ] || [ -e "$root/usr/lib/spillway/libspillway_mpi.so" ] || fail "expected the plug-in for MPI, got none"
grep -q '^.TH SPILLWAY 1' <<<"$(zcat "$root/usr/share/man/man1/spillway.1.gz")" || fail "expected the manual page, got something else"

for i in $(seq 200); do echo "And it was so, $i."; done >"$work/text.txt"
flags=(train --model gpt2-tiny --data "$work/text.txt" --sequence-length 32 --steps 2 --device cpu --device-memory 64MiB --host-memory 64MiB
  --tensorboard off)
"$root/usr/bin/spillway" --version
"$root/usr/bin/spillway" "${flags[@]}" --out "$work/installed" >/dev/null 2>&1
"$build/spillway" "${flags[@]}" --out "$work/built" >/dev/null 2>&1
numbers() { grep -o '"\(step\|loss\|grad_norm\)":[^,]*' "$work/$1/metrics.jsonl"; }
[ "$(numbers built | wc -l)" -eq 6 ] || fail "expected 2 steps of 3 numbers, got $(numbers built)"
diff <(numbers built) <(numbers installed) || fail "the numbers of the installed program differ from the build's"

if [ "$(id -u)" -eq 0 ]; then
  dpkg --root="$root" --force-depends --purge spillway spillway-mpi libspillway-dev >"$work/said.txt" 2>&1 || fail "$(cat "$work/said.txt")"
  left=$(find "$root" -path "$root/var" -prune -o ! -type d -print)
  [ -z "$left" ] || fail "expected nothing left behind, got $left"
fi
