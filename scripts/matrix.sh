#!/usr/bin/env bash
# Trains the full product of placements, overlaps, orders, engines, formats … (tests/parallel/support_cells.h) and compares every bit of
# every cell: 960,000 cells, seven in a second and core; then that of ranks, ZeRO stages and pipelines (tests/app/support_rank_cells.h): 48,384.
#   scripts/matrix.sh [FIRST [LAST]]    parts FIRST to LAST of 4000 (default: all), as many at a time as there are cores
# Parts are spread over the product, so a few of them are a fair sample. A part that has passed is in build/matrix and is not run again.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly parts=4000
first=${1-0} last=${2-$((parts - 1))}

source scripts/steps.sh
build release test_parallel test_app
mkdir -p build/matrix

run_part() {
  local log=build/matrix/$1-of-$2.log
  [ "$(grep -c 'PASSED' "$log" 2>/dev/null)" != 2 ] || return 0
  { SPILLWAY_MATRIX=$1/$2 build/release/tests/test_parallel --gtest_filter='SoakMatrix.*' &&
    SPILLWAY_MATRIX=$1/$2 build/release/tests/test_app --gtest_filter='SoakRankMatrix.*'; } >"$log" 2>&1 ||
    { echo "part $1 failed, see $log"; return 1; }
  echo "part $1 of $2: $(grep ' cells of part ' "$log")"
}
export -f run_part
seq "$first" "$last" | xargs -P "$jobs" -I{} bash -c 'run_part {} '$parts
