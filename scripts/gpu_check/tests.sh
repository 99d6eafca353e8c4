# gpu_check.sh tests: sourced by it. The tests that the machine they are built on skips, selftest, and compute-sanitizer over the kernels'.

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

# each_suite SECONDS NAME SECONDS_OF_ONE FOLDER SUITES COMMAND...: the command for every suite, in a process of its own with a log of its
# own in FOLDER, some at once: a GPU that one of them leaves in disorder is not the others'. What did not end well is said at the end of
# its log.
one_suite='suite=${*: -1} log=$2/${suite//\//_}.log
timeout -k 5 "$1" "${@:3:$#-3}" --gtest_color=no --gtest_filter="$suite.*" >"$log" 2>&1 </dev/null &
trap "kill $!" TERM
wait $! || echo "== $suite ended with $?" >>"$log"'
each_suite() {
  local seconds=$1 name=$2 one folder=$4 suites=$5
  one=$(seconds_of "$3")
  shift 5
  mkdir -p "$folder" && printf '%s\n' $suites >"$folder/suites"
  attempt "$seconds" "$name" xargs -a "$folder/suites" -P 4 -n 1 bash -c "$one_suite" _ "$one" "$folder" "$@"
  command="$*, each suite: ${suites//$'\n'/ }"
  cat "$folder"/*.log >"$folder/all" 2>/dev/null
  log=$folder/all
}
suites_of() { sed -n "s|^$1/\([^.]*\)\..*|\1|p" "$here/share/expected_skips.txt" | sort -u; }
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

# Tests for machines that this one is not are not missed on it.
elsewhere='(several|two|[2-9]) (or more )?GPUs|second GPU|emulated GPUs'
room_tests() {
  local room=$1 name="tests of $1" folder=$logs/$1 all=$logs/$1/all reasons passed bad ended unbegun untold skipped
  if [ ! -e "$here/bin/test_$room" ]; then judged "$name" "absent: not in this archive" "test_$room"; return; fi
  each_suite 70 "$name" 60 "$folder" "$(suites_of "$room")" "$here/bin/test_$room"
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
  elif [ $status -ne 0 ] || [ -n "$unbegun" ]; then
    row "$name" "$([ $status -eq 0 ] && echo FAILED || outcome), $passed passed${unbegun:+, not begun: $(paste -sd' ' <<<"$unbegun")}"
  elif [ -n "$untold" ]; then row "$name" "FAILED: $passed passed, nothing is said of $(paste -sd' ' <<<"$untold")"
  elif [ -n "$skipped" ] && [ -z "$gpu" ]; then row "$name" "absent: $(head -n 1 <<<"$skipped")"
  elif [ -n "$skipped" ] && ! grep -qv libnccl <<<"$skipped"; then row "$name" "absent: $passed passed, $(head -n 1 <<<"$skipped")"
  elif [ -n "$skipped" ]; then row "$name" "FAILED: $passed passed, though there is a GPU $(head -n 1 <<<"$skipped")"
  else row "$name" "ok, $passed passed${reasons:+, those for several GPUs not}"
  fi
}

# sanitize SECONDS NAME TOOL ROOM SUITES FLAG...: ended in the midst of a suite it says nothing against what it has seen.
sanitizer=$(tool compute-sanitizer)
sanitize() {
  local seconds=$1 name=$2 tool=$3 room=$4 suites=$5 folder=$logs/$3-$4 all=$logs/$3-$4/all passed found late died idle
  shift 5
  without_gpu "$name" "compute-sanitizer --tool $tool test_$room" && return
  if [ -z "$sanitizer" ]; then
    judged "$name" "absent: no compute-sanitizer on this node" "compute-sanitizer --tool $tool test_$room"
    return
  fi
  if [ -z "$suites" ] || [ ! -e "$here/bin/test_$room" ]; then judged "$name" "absent: not in this archive" "test_$room"; return; fi
  each_suite "$seconds" "$name" "$seconds" "$folder" "$suites" env SPILLWAY_TEST_SEPARATE_MEMORY=1 "$sanitizer" --tool "$tool" \
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

for room in $(grep -v '^#' "$here/share/expected_skips.txt" | cut -d/ -f1 | sort -u); do room_tests "$room"; done
gpu_step 60 selftest "$here/bin/spillway" selftest --device cuda
# NVIDIA's own kernels are looked at by memcheck alone.
kernels=$(suites_of kernels) ours=$(suites_of kernels | grep -vE '^(MatmulTwins|Conv)')
sanitize 110 "memcheck of kernels" memcheck kernels "$kernels"
sanitize 60 "memcheck of training" memcheck parallel "$(suites_of parallel | grep '^Models/OnGpu$')"
sanitize 90 "racecheck of kernels" racecheck kernels "$ours"
sanitize 40 "synccheck of kernels" synccheck kernels "$ours"
sanitize 60 "initcheck of kernels" initcheck kernels "$ours" --check-api-memory-access no
