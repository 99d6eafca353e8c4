# Sourced by gpu_check.sh: the tests that the machine they are built on skips, room by room, and compute-sanitizer over them.

jobs=$(nproc)
[ "$jobs" -le 8 ] || jobs=8
[ "$jobs" -ge 4 ] || jobs=4
sanitizer=$(tool compute-sanitizer) no_sanitizer="no compute-sanitizer on this node" reruns=0

# Why tests of a log were skipped: "3 of them: reason" a line.
skip_reasons() {
  awk '/: Skipped$/ {getline reason} /^\[  SKIPPED \] .* ms\)$/ {++count[reason]}
       END {for (r in count) print count[r] " of them: " r}' "$1" | sort -rn
}

# Of a failing log of tests: what the first failure said, and the end where there is none.
first_failure() {
  awk '/^\[ RUN      \]/ {n = 0}
       {lines[n++] = $0}
       /^\[  FAILED  \] .* ms\)$/ {for (i = 0; i < n && i < 40; ++i) print lines[i]; found = 1; exit}
       END {if (!found) for (i = n > 25 ? n - 25 : 0; i < n; ++i) print lines[i]}' "$1"
}

# each_suite NAME SECONDS_OF_ONE FOLDER SUITES COMMAND...: the command for every suite, in a process of its own with a log of its own in
# FOLDER, some at once and in this order: a GPU that one of them leaves in disorder is not the others'. What did not end well is said at the
# end of its log.
one_suite='suite=${*: -1} log=$2/${suite//\//_}.log
timeout -k 5 "$1" "${@:3:$#-3}" --gtest_color=no --gtest_filter="$suite.*" >"$log" 2>&1 </dev/null &
trap "kill $!" TERM
wait $! || echo "== $suite ended with $?" >>"$log"'
each_suite() {
  local name=$1 one folder=$3 suites=$4
  one=$(scaled "$2")
  shift 4
  mkdir -p "$folder" && printf '%s\n' $suites >"$folder/suites"
  attempt "$name" xargs -a "$folder/suites" -P "$jobs" -n 1 bash -c "$one_suite" _ "$one" "$folder" "$@"
  command="$*, each suite: ${suites//$'\n'/ }"
  cat "$folder"/*.log >"$folder/all" 2>/dev/null
  log=$folder/all
}
# suites_of ROOM [PATTERN]: those that match it, in the order of its alternatives, before the others.
suites_of() {
  local all each
  all=$(sed -n "s|^$1/\([^.]*\)\..*|\1|p" "$here/share/expected_skips.txt" | sort -u)
  { for each in ${2-}; do grep -E "^$each" <<<"$all"; done; echo "$all"; } | awk 'NF && !seen[$0]++'
}
passed_in() { grep -cE '^\[       OK \]' "$1"; }
# What a suite was ended by: "AttentionTwins ended with 3" a line; 1 where a test failed is that test's.
ended_in() {
  local one
  for one in "$1"/*.log; do
    if grep -qE '^\[  FAILED  \] .* ms\)$' "$one"; then sed -n '/ended with 1$/d; s/^== //p' "$one"; else sed -n 's/^== //p' "$one"; fi
  done
}
# Suites that have no log: xargs never came to them.
unbegun_in() {
  local suite
  while read -r suite; do [ -e "$1/${suite//\//_}.log" ] || echo "$suite"; done <"$1/suites"
}
# Tests of a room that are listed and of which its log says nothing.
untold_in() {
  local test
  sed -n "s|^$1/||p" "$here/share/expected_skips.txt" | while read -r test; do
    grep -qE "^\[ +(OK|SKIPPED|FAILED) +\] ${test//./\\.}[ ,/]" "$2" || echo "$test"
  done
}
failures_of() {
  local one
  for one in $(grep -lE '^\[  FAILED  \] .* ms\)$|^== ' "$1"/*.log); do detail "$2: $(basename "$one" .log)" "$(first_failure "$one")"; done
}

# again ROOM TEST: what failed, alone and once, where the CPU waits for each launch and under compute-sanitizer. Of what it says 40 lines are
# kept. At most four in a check.
again() {
  local name="again: $1/$2" of=("$here/bin/test_$1" --gtest_color=no "--gtest_filter=$2") ends said
  [ $((++reruns)) -le 4 ] || return
  turn 10
  attempt "$name" env CUDA_LAUNCH_BLOCKING=1 ${sanitizer:+SPILLWAY_TEST_SEPARATE_MEMORY=1 "$sanitizer" --tool memcheck --target-processes all \
    --error-exitcode 86 --report-api-errors no} "${of[@]}"
  if [ "$sanitizer" ] && ! grep -q '^========= ERROR SUMMARY' "$log"; then
    attempt "$name, without compute-sanitizer" env CUDA_LAUNCH_BLOCKING=1 "${of[@]}"
  fi
  ends=$([ $status -eq 0 ] && echo "alone it passes" || echo "alone it ends with $status")
  said=$({ grep -E '^=========' "$log" | head -n 30; first_failure <(grep -vE '^=========' "$log"); } | head -n 40)
  detail "$name: $ends" "$said"
  row "$name" "looked: $ends, $(grep -cE '^========= (Invalid|Error|Warning: Race|Uninitialized|Program hit)' "$log") complaints of compute-sanitizer"
}

# room_tests SECONDS ROOM [PATTERN]: a test for machines that this one is not is not missed on it. Returns whether that row is not FAILED.
elsewhere='(several|two|[2-9]) (or more )?GPUs|second GPU|emulated GPUs'
room_tests() {
  local room=$2 name="tests of $2" folder=$logs/$2 all=$logs/$2/all reasons passed bad ended unbegun untold skipped test
  turn "$1"
  if [ ! -e "$here/bin/test_$room" ]; then judged "$name" "absent: not in this archive" "test_$room"; return; fi
  each_suite "$name" "$1" "$folder" "$(suites_of "$room" "${3-}")" "$here/bin/test_$room"
  passed=$(passed_in "$all") reasons=$(skip_reasons "$all") ended=$(ended_in "$folder") unbegun=$(unbegun_in "$folder")
  bad=$(sed -n 's/^\[  FAILED  \] \([^ ,]*\).* ms)$/\1/p' "$all")
  untold=$(untold_in "$room" "$all")
  skipped=$(grep -vE "$elsewhere" <<<"$reasons" | grep .)
  [ -z "$reasons" ] || detail "$name: not run" "$reasons"
  if [ -n "$bad$ended" ]; then
    detail "$name: failed" "$bad"$'\n'"$ended"
    failures_of "$folder" "$name"
    log=/dev/null
    row "$name" "FAILED: $(wc -w <<<"$bad") tests, ${ended:+and $(paste -sd, <<<"$ended"), }$passed passed"
    for test in $(head -n 2 <<<"$bad"); do again "$room" "$test"; done
    [ "$bad" ] || again "$room" "$(head -n 1 <<<"$ended" | cut -d' ' -f1).*"
    return 1
  elif [ $status -ne 0 ] || [ -n "$unbegun" ]; then
    row "$name" "$([ $status -eq 0 ] && echo FAILED || outcome), $passed passed${unbegun:+, not begun: $(paste -sd' ' <<<"$unbegun")}"
  elif [ -n "$untold" ]; then row "$name" "FAILED: $passed passed, nothing is said of $(paste -sd' ' <<<"$untold")"
  elif [ -n "$skipped" ] && [ -z "$gpu" ]; then row "$name" "absent: $(head -n 1 <<<"$skipped")"
  elif [ -n "$skipped" ] && ! grep -qv libnccl <<<"$skipped"; then row "$name" "absent: $passed passed, $(head -n 1 <<<"$skipped")"
  elif [ -n "$skipped" ]; then row "$name" "FAILED: $passed passed, though there is a GPU $(head -n 1 <<<"$skipped")"
  else row "$name" "ok, $passed passed${reasons:+, those for several GPUs not}"
  fi
  [[ ${rows[-1]} != "| $name | FAILED"* ]]
}

# try_sanitizer SECONDS: whether it works here; on some virtual machines it refuses the GPU.
try_sanitizer() {
  local name="compute-sanitizer"
  turn "$1"
  without_gpu "$name" "$name" && return
  [ "$sanitizer" ] || { judged "$name" "absent: $no_sanitizer" "$name"; return; }
  attempt "$name" "$sanitizer" --tool memcheck --target-processes all "$here/bin/test_device" --gtest_color=no \
    --gtest_filter=CudaHandle.EventOrdersTwoStreams
  if grep -q '^========= ERROR SUMMARY' "$log" && grep -q '^\[       OK \]' "$log"; then
    row "$name" ok
  else
    no_sanitizer="it does not work on this node: $(grep -E '^=========.*[A-Za-z]' "$log" | grep -v COMPUTE-SANITIZER | head -n 1 | cut -c11-)"
    sanitizer=""
    row "$name" "absent: $no_sanitizer"
  fi
}

# sanitize SECONDS NAME TOOL ROOM SUITES FLAG...: ended in the midst of a suite it says nothing against what it has seen.
sanitize() {
  local seconds=$1 name=$2 tool=$3 room=$4 suites=$5 folder=$logs/$3-$4 all=$logs/$3-$4/all passed found late died idle
  shift 5
  turn "$seconds"
  without_gpu "$name" "compute-sanitizer --tool $tool test_$room" && return
  [ "$sanitizer" ] || { judged "$name" "absent: $no_sanitizer" "compute-sanitizer --tool $tool test_$room"; return; }
  if [ -z "$suites" ] || [ ! -e "$here/bin/test_$room" ]; then judged "$name" "absent: not in this archive" "test_$room"; return; fi
  each_suite "$name" $((2 * seconds)) "$folder" "$suites" env SPILLWAY_TEST_SEPARATE_MEMORY=1 "$sanitizer" --tool "$tool" \
    --target-processes all --error-exitcode 86 --report-api-errors no "$@" "$here/bin/test_$room"
  passed=$(passed_in "$all") late=$({ sed -n 's/^== \(.*\) ended with \(124\|137\|143\)$/\1/p' "$all"; unbegun_in "$folder"; } | sort -u)
  found=$(grep -cE '^========= (Invalid|Error|Warning: Race|Uninitialized|Barrier|Program hit|Divergent|Missing)' "$all")
  died=$(sed -n '/ended with \(124\|137\|143\)$/d; s/^== //p' "$all")
  # It was ended with the step: all that have no summary are late.
  [ $status -ne 124 ] || late=$(while read -r suite; do
    grep -qE '^========= (ERROR|RACECHECK) SUMMARY' "$folder/${suite//\//_}.log" 2>/dev/null || echo "$suite"
  done <"$folder/suites")
  if [ "$found" -gt 0 ] || [ -n "$died" ]; then
    failures_of "$folder" "$name"
    detail "$name: what it found" "$(grep -E '^=========' "$all" | head -n 40)"
    log=/dev/null
    row "$name" "FAILED: $found complaints${died:+, $(paste -sd, <<<"$died")}, $passed tests passed"
  elif [ -n "$late" ]; then
    row "$name" "cut short after $passed tests, nothing found, not done: $(paste -sd' ' <<<"$late")"
  elif [ $status -ne 0 ]; then row "$name" "$(outcome)"
  elif [ "$(grep -cE '^========= (ERROR|RACECHECK) SUMMARY: 0 ' "$all")" -lt "$(wc -l <"$folder/suites")" ]; then
    row "$name" "FAILED: a suite has no summary of the sanitizer's"
  elif idle=$(cd "$folder" && grep -LE '^\[       OK \]' ./*.log) && [ -n "$idle" ]; then
    row "$name" "FAILED: $passed tests, none of $(tr -d '\n' <<<"${idle//.log/ }")"
  else row "$name" "ok, $passed tests"
  fi
}
