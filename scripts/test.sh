#!/usr/bin/env bash
# Builds and runs the tests: the quick ones in release; with --asan also under ASan + UBSan, as CI does; with --soak also the long ones
# (release), Python's on emulated GPUs, and base, data, offload, parallel and what runs on an emulated GPU under TSan. Ends with ctest's summary over all of them. Logs are
# in build/logs.
# As root on a machine with CUDA's compiler and no GPU, exactly the tests in tests/expected_skips.txt may be skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

case "${1-}" in
  "") labels='^quick$' builds=(release) ;;
  --asan) labels='^quick$' builds=(release asan) ;;
  --soak) labels='^(quick|soak)$' builds=(release asan emulated tsan tsan_gpu) ;;
  *) echo "usage: scripts/test.sh [--asan | --soak]" >&2; exit 2 ;;
esac

if [ "${1-}" = --soak ]; then scripts/setup.sh --soak; else scripts/setup.sh --tests; fi
source scripts/steps.sh
configuring=(-DSPILLWAY_CUDA=AUTO)  # the quickstart may have left it out
build release
configuring=()
[[ " ${builds[*]} " != *" asan "* ]] || build asan
[[ " ${builds[*]} " != *" emulated "* ]] || build emulated spillway_python
[[ " ${builds[*]} " != *" tsan "* ]] || build tsan test_base test_data test_offload test_parallel
[[ " ${builds[*]} " != *" tsan_gpu "* ]] || build tsan_gpu test_device test_kernels test_parallel

# One ctest over all builds, so that one summary counts everything. Some tests mostly wait: twice as many as there are cores.
mkdir -p build/tests
for name in "${builds[@]}"; do echo "subdirs(\"$PWD/build/$name\")"; done >build/tests/CTestTestfile.cmake
export ASAN_OPTIONS=malloc_context_size=12 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 TSAN_OPTIONS=ignore_noninstrumented_modules=1
log=build/logs/ctest.log status=0
lines_on_failure=0 step $log "running the tests" \
  ctest --test-dir build/tests -L "$labels" -j $((2 * jobs)) --no-tests=error --output-on-failure --test-output-size-passed 10000000 --output-junit "$PWD/build/logs/ctest.xml" || status=$?
[ $status -eq 0 ] || grep -vE '^( *Start +[0-9]+:| *[0-9]+/[0-9]+ .* (Passed|\*\*\*Skipped) )' $log | sed '/tests passed, .* tests failed/,$d'

# Skips: a test that quietly no longer runs is a failure. Where there are no GPU tests (no CUDA compiler) the listed ones are not missed.
listed=$(grep -v '^#' tests/expected_skips.txt | sort)
# One with parameters is one of the list, whatever they are. Of tests that share a process (room/Part.k) ctest sees none: gtest's output says
# which were skipped.
skipped=$(awk -F'"' '
    /<testcase / { name = $2; sub(/^([a-z_]*san[a-z_]*|ptx):/, "", name); part = name ~ /\/Part\.[0-9]+$/; room = name; sub(/\/.*/, "/", room) }
    /<testcase / && /status="notrun"/ { print name }
    part && match($0, /^\[  SKIPPED \] [^ ,(]+ \(/) { print room substr($0, 14, RLENGTH - 15) }' build/logs/ctest.xml |
  sed 's|^\([^.]*\.[^/ ]*\).*|\1|' | sort -u | tee build/logs/skipped.txt)
# Where cuobjdump was not to be had (setup said so), what reads kernels with it skips as well.
[ -x build/tools/nvidia/cu13/bin/cuobjdump ] || [ ! -e build/setup-tools.log ] || skipped=$(grep -v '^kernels/DeviceCodeRelease\.' <<<"$skipped")
if ! grep -q '^CMAKE_CUDA_COMPILER:' build/release/CMakeCache.txt; then listed=$(comm -12 <(echo "$listed") <(echo "$skipped")); fi
if [ "$listed" != "$skipped" ]; then
  echo "== skipped tests differ from tests/expected_skips.txt (< listed, > skipped here; those are in build/logs/skipped.txt)"
  diff <(echo "$listed") <(echo "$skipped") || true
  if [ "$(id -u)" -eq 0 ] && [ ! -e /dev/nvidiactl ]; then [ $status -ne 0 ] || status=1; fi
fi

sed -n '/tests passed, .* tests failed/,$p' $log | grep -vE '\(Skipped\)$|^The following tests did not run:'
if [ $status -ne 0 ]; then  # the reasons once more, at the end, because who reads only the end of a long output would miss them
  {
    echo "scripts/test.sh: failed. Tests that failed (what they printed is above the summary):"
    grep -E '^[0-9]+/[0-9]+ Test .*\*\*\*(Failed|Exception|Timeout|Not Run)' $log | sed 's/ \.\.*/ /' || echo "  none"
    echo "Skipped tests against tests/expected_skips.txt (< listed, > skipped here):"
    diff <(echo "$listed") <(echo "$skipped") || true
  } >&2
fi
exit $status
