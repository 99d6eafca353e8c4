#!/usr/bin/env bash
# Trains the full product of ways to train a tiny model and compares every bit of every cell: placements, overlaps, orders, engines, formats …
# on one rank (tests/parallel/run/support_cells.h), then ranks, ZeRO stages, pipelines, communicators (tests/app/program/support_rank_cells.h). Says how
# many cells there are; as many at a time as there are cores.
#   scripts/matrix.sh [MINUTES]    begins no part after so many minutes (default: all of it, some weeks of a core)
# Parts are spread over the product, so the first of them are a fair sample. They are run in order; one that has passed with these programs is
# in build/matrix and is not run again.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly parts=8000
minutes=${1-}
[[ $minutes =~ ^[0-9]*$ ]] || { echo "usage: scripts/matrix.sh [MINUTES]" >&2; exit 2; }

source scripts/steps.sh
build release test_parallel test_app
programs=(build/release/tests/test_parallel build/release/tests/test_app)
logs=build/matrix/$(sha256sum "${programs[@]}" build/release/spillway | sha256sum | cut -c1-12)
mkdir -p "$logs"

passed() { [ "$(grep -c 'PASSED' "$logs/$1.log" 2>/dev/null)" = 2 ]; }
run_part() {
  for program in "${programs[@]}"; do
    SPILLWAY_MATRIX=$1/$parts $program --gtest_filter='SoakMatrix.*:SoakRankMatrix.*' || break
  done >"$logs/$1.log" 2>&1
  if passed "$1"; then
    echo "part $1: $(grep -h ' cells of part ' "$logs/$1.log" | paste -sd';' | sed 's/;/; /')"
  else
    echo "part $1 failed, see $logs/$1.log"
  fi
}

begin=$SECONDS
for ((part = 0; part < parts; ++part)); do
  passed $part && continue
  while [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do wait -n; done
  [ -z "$minutes" ] || [ $((SECONDS - begin)) -lt $((60 * minutes)) ] || break
  run_part $part &
done
wait

done=0 failed=0
for ((part = 0; part < parts; ++part)); do
  if passed $part; then done=$((done + 1)); elif [ -e "$logs/$part.log" ]; then failed=$((failed + 1)); fi
done
echo "$done of $parts parts have passed, $failed have failed; logs are in $logs"
[ $failed -eq 0 ]
