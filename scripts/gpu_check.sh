#!/usr/bin/env bash
# Checks Spillway on a node with a GPU, in less than nine minutes, without root and without network: every test that needs a GPU, short
# trainings, NVIDIA's compute-sanitizer over the quick tests, the benches, and PyTorch beside them. Lies in the archive of
# `scripts/bundle.sh --check`; unpack that anywhere and run
#   ./gpu_check.sh [FOLDER]    writes FOLDER/report.md (default: gpu_check.out) and nothing outside of FOLDER
# Each step has a second, counted from the beginning, by which it is ended; what is left over is the next one's. All are run whatever fails;
# the exit status is 1 if one failed. Where there is no GPU, what needs one is skipped and says why.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:-gpu_check.out}
if [ ! -x "$here/bin/test_device" ]; then
  echo "gpu_check.sh: there is no bin/test_device beside it: run it in the unpacked archive of scripts/bundle.sh --check" >&2
  exit 2
fi
[[ ${1-} != -* ]] || { echo "usage: gpu_check.sh [FOLDER]" >&2; exit 2; }
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
if [ -n "$(ls -A "$out")" ] && [ ! -e "$out/.gpu_check" ]; then
  echo "gpu_check.sh: $out holds what is not mine: name a new folder, or one of an earlier check" >&2
  exit 2
fi
rm -rf "$out"/{report.md,logs,runs,tmp,cache}
mkdir -p "$out"/{logs,runs,tmp,cache} && touch "$out/.gpu_check" || exit 2
export LC_ALL=C TMPDIR=$out/tmp XDG_CACHE_HOME=$out/cache CUDA_CACHE_PATH=$out/cache/cuda TORCHINDUCTOR_CACHE_DIR=$out/cache/inductor
export TRITON_CACHE_DIR=$out/cache/triton PYTHONDONTWRITEBYTECODE=1 SPILLWAY_TEST_DATA=$here/share/data
# NVIDIA's libraries may be there with PyTorch alone.
for folder in $(python3 -c 'import sys; print("\n".join(p + "/nvidia" for p in sys.path if p))' 2>/dev/null); do
  for libraries in "$folder"/*/lib; do [ ! -d "$libraries" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries; done
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}

rows=() details=() failed=() status=0 log="" gpu="" running=""
trap 'kill "$running" 2>/dev/null; exit 130' INT TERM

# attempt BY NAME COMMAND...: runs it until second BY with its output in $log; its status is in $status, 124 where it was ended.
attempt() {
  local by=$1 name=$2 begin=$SECONDS left=$(($1 - SECONDS))
  shift 2
  log=$out/logs/${name// /_}.log command=$*
  status=124
  if [ $left -ge 2 ]; then
    timeout -k 5 "$left" "$@" >"$log" 2>&1 </dev/null &
    running=$!
    wait $running
    status=$?
    [ $status -ne 137 ] || status=124
  else
    echo "no time was left by second $by" >"$log"
  fi
  took=$((SECONDS - begin))
}

# row NAME OUTCOME: what came of the last attempt; all but ok, cut short and skipped are failures, which show their log's end.
row() {
  local shown=${command//$here\//}
  shown=${shown//$out/OUT}
  rows+=("| $1 | $2 | $took | \`${shown:0:240}\` |")
  printf '%4d s  %-34s %s\n' $SECONDS "$1" "${2:0:120}"
  case $2 in
    ok*|"cut short"*|skipped*) ;;
    *) failed+=("$1") && detail "$1: the end of its log" "$(tail -n 60 "$log")" ;;
  esac
}
detail() { details+=("### $1"$'\n\n```\n'"$2"$'\n```\n'); }
skip() { took=0 command=$3 && row "$2" "skipped: $1"; }

outcome() {
  case $status in
    0) echo ok ;;
    124) echo "FAILED: not done by its second" ;;
    *) echo "FAILED with $status" ;;
  esac
}

# step BY NAME COMMAND...: something that succeeds or fails.
step() {
  attempt "$@"
  row "$2" "$(outcome)"
}
# gpu_step BY NAME COMMAND...: the same, of what needs a GPU.
gpu_step() {
  if [ -n "$gpu" ]; then step "$@"; else skip "$no_gpu" "$2" "${*:3}"; fi
}

# Why tests of a log were skipped: "3 of them: reason" a line.
skip_reasons() {
  awk '/: Skipped$/ {getline reason} /^\[  SKIPPED \] .* ms\)$/ {++count[reason]} END {for (r in count) print count[r] " of them: " r}' "$1"
}
number_of() { sed -n "s/^\[  $1 *\] \([0-9]*\) tests\?.*/\1/p" "$2" | head -n 1; }

# gtests BY NAME PROGRAM FILTER: a skip counts as a failure where there is a GPU, if it is not for the want of several.
gtests() {
  local passed skipped reasons other=
  attempt "$1" "$2" "$here/bin/$3" --gtest_color=no --gtest_filter="$4"
  passed=$(number_of PASSED "$log") skipped=$(number_of SKIPPED "$log") reasons=$(skip_reasons "$log")
  [ -z "$gpu" ] || other=$(grep -vE '(several|two|2|3|4) (or more )?GPUs|second GPU|emulated GPUs' <<<"$reasons" | grep -v '^$')
  [ -z "$reasons" ] || detail "$2: skipped" "$reasons"
  if [ $status -ne 0 ]; then
    row "$2" "$(outcome), $(grep -cE '^\[  FAILED  \] .* ms\)$' "$log") tests failed, $(grep -cE '^\[       OK \]' "$log") passed"
  elif [ -n "$other" ]; then
    row "$2" "FAILED: ${passed:-0} passed, ${skipped:-0} skipped though there is a GPU"
  elif [ "${passed:-0}" -gt 0 ]; then
    row "$2" "ok, $passed passed${skipped:+, $skipped skipped}"
  elif [ -n "$reasons" ]; then
    row "$2" "skipped: $(head -n 1 <<<"$reasons")"
  else
    row "$2" "skipped: this build has none of them"
  fi
}

# ---- what this is and where
attempt 15 "find a GPU" "$here/bin/test_device" --gtest_color=no --gtest_filter=DeviceQuery.DescribesEveryGpu
no_gpu=$(skip_reasons "$log" | sed 's/^[0-9]* of them: \(needs a GPU: \)\?//')
[ -n "$no_gpu" ] || gpu=yes
echo "Spillway $("$here/bin/spillway" --version | awk '{print $2}') of $(cat "$here/share/revision"): ${no_gpu:-there is a GPU}"
facts() {
  local system memory asked=name,driver_version,memory.total,clocks.max.sm,power.limit
  system=$(. /etc/os-release 2>/dev/null && echo "$PRETTY_NAME") memory=$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)
  echo "- archive: $("$here/bin/spillway" --version | head -n 1), revision $(cat "$here/share/revision")"
  echo "- node: $(uname -sr), $system, $(nproc) cores, $memory"
  echo "- GPU: $(nvidia-smi --query-gpu=$asked --format=csv,noheader 2>/dev/null || echo "nvidia-smi is not there or found none")"
  echo "- PyTorch: $(python3 -c 'import torch; print(torch.__version__, "with CUDA", torch.version.cuda)' 2>/dev/null || echo none)"
}
facts >"$out/logs/facts.md"
step 25 doctor "$here/bin/spillway" doctor
detail "doctor" "$(cat "$log")"

# ---- correctness: the tests that the machine they are built on skips
rooms=$(grep -v '^#' "$here/share/expected_skips.txt" | cut -d/ -f1 | sort -u)
count=$(wc -w <<<"$rooms") by=30
for room in $rooms; do
  by=$((by + 190 / count))
  filter=$(sed -n "s|^$room/||p" "$here/share/expected_skips.txt" | sed '/\//s|$|/*|' | paste -sd:)  # instances have parameters
  [ ! -e "$here/bin/test_$room" ] || gtests $by "tests of $room" "test_$room" "$filter"
done

# Words in no order: the loss falls fast, but not to nothing.
awk 'BEGIN {n = split("and the river runs over stones under light of a long day", words, " "); state = 12345
            for (i = 0; i < 400000; ++i) {
              state = (state * 69069 + 1) % 4294967296
              printf "%s ", words[int(state / 65536) % n + 1]
            }}' >"$out/runs/text.txt"
train=("$here/bin/spillway" train --tokenizer bytes --data "$out/runs/text.txt" --seed 5 --no-final-checkpoint --device cuda)
column() { sed -n "s/.*\"$2\":\([-0-9.e+]*\).*/\1/p" "$out/runs/$1/metrics.jsonl" 2>/dev/null; }

# trains BY NAME RUN FLAGS...: and learns.
trains() {
  if [ -z "$gpu" ]; then skip "$no_gpu" "$2" "spillway train --device cuda ${*:4}"; return; fi
  attempt "$1" "$2" "${train[@]}" --out "$out/runs/$3" "${@:4}"
  local losses speed
  losses=$(column "$3" loss) speed=$(column "$3" tokens_per_s | tail -n 1)
  if [ $status -ne 0 ]; then row "$2" "$(outcome)"
  elif ! awk 'NR == 1 {first = $1} {last = $1} END {exit !(NR > 1 && last < 0.9 * first)}' <<<"$losses"; then
    row "$2" "FAILED: the loss does not fall"
  else row "$2" "ok, loss $(head -n 1 <<<"$losses") to $(tail -n 1 <<<"$losses"), ${speed%.*} tokens/s"
  fi
}
small=(--model gpt2-124m --sequence-length 512 --micro-batch-size 4 --gradient-accumulation-steps 2 --steps 12 --learning-rate 1e-3
       --warmup-steps 2)
tiny=(--model gpt2-tiny --sequence-length 128 --micro-batch-size 8 --steps 60 --learning-rate 2e-3)
trains 235 "gpt2-tiny, 60 steps" tiny "${tiny[@]}"
for precision in fp16 tf32; do trains 245 "gpt2-tiny in $precision" $precision "${tiny[@]}" --precision $precision; done
trains 255 "gpt2-124m on the GPU" whole "${small[@]}" --place-parameters device --place-gradients device --place-optimizer device
trains 275 "gpt2-124m, all state on the host" offloaded "${small[@]}" --place-parameters host --place-gradients host --place-optimizer host
if [ -n "$(column whole loss)" ] && [ -n "$(column offloaded loss)" ]; then
  command="compare the losses and norms of the two" took=0 log=$out/logs/compare.log
  paste <(column whole loss) <(column whole grad_norm) <(column offloaded loss) <(column offloaded grad_norm) >"$log"
  row "the same bits in both" "$(awk '$1 != $3 || $2 != $4 {exit 1}' "$log" && echo ok || echo "FAILED: they differ")"
fi
if "$here/bin/spillway" selftest --help 2>/dev/null | grep -q -- '--device '; then
  gpu_step 310 selftest "$here/bin/spillway" selftest --device cuda
fi

# ---- compute-sanitizer: ended in the midst of the tests it says nothing against what it has seen
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
sanitize() {
  local by=$1 name=$2 tool=$3 program=$4 filter=$5 passed complaints
  if [ -z "$gpu" ]; then skip "$no_gpu" "$name" "compute-sanitizer --tool $tool $program"; return; fi
  if [ -z "$sanitizer" ]; then skip "no compute-sanitizer on this node" "$name" "compute-sanitizer --tool $tool $program"; return; fi
  attempt "$by" "$name" "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 86 --report-api-errors no \
    "$here/bin/$program" --gtest_color=no --gtest_filter="$filter"
  passed=$(grep -cE '^\[       OK \]' "$log")
  complaints=$(grep -E '^=========' "$log" | grep -vcE 'COMPUTE-SANITIZER|ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards|^=========[[:space:]]*$')
  if [ "$complaints" -gt 0 ]; then row "$name" "FAILED: it complains, after $passed tests"
  elif [ $status -eq 124 ] && [ "$passed" -gt 0 ]; then row "$name" "cut short after $passed tests, nothing found"
  elif [ $status -ne 0 ]; then row "$name" "$(outcome)"
  else row "$name" "ok, $passed tests"
  fi
}
sanitize 330 "memcheck of kernels" memcheck test_kernels '*Twins*'
sanitize 345 "memcheck of training" memcheck test_parallel 'Models/OnGpu.*'
sanitize 365 "racecheck of kernels" racecheck test_kernels '*Twins*-MatmulTwins*:Conv*'  # NVIDIA's own kernels are not looked at
sanitize 385 "initcheck of kernels" initcheck test_kernels '*Twins*-MatmulTwins*:Conv*'

# ---- speed
bench() {
  if [ ! -e "$here/bin/$3" ]; then skip "not in this archive" "$2" "$3"; return; fi
  attempt "$1" "$2" "$here/bin/$3" --benchmark_color=false
  local verdict why
  why=$(sed -n "s/^skipped: //p; s/.*ERROR OCCURRED: '\(.*\)'.*/\1/p" "$log" | head -n 1) verdict=$(grep '^verdict:' "$log")
  if [ -n "$why" ]; then
    row "$2" "$([ -n "$gpu" ] && echo FAILED || echo skipped): $why"
    return
  fi
  row "$2" "$(outcome)${verdict:+, ${verdict#verdict: }}"
  [ $status -ne 0 ] || detail "$2" "$(grep -vE '^(Run on|  L[123]|CPU Caches|Load Average|\*\*\*)' "$log" | cut -c1-200)"
}
bench 415 "bench of memory" bench_memory_cuda
bench 445 "bench of matrix products" bench_matmul_cuda
bench 470 "bench of attention" bench_attention
if [ -z "$gpu" ]; then
  skip "$no_gpu" "PyTorch beside" "gpu_peers.py"
elif ! python3 -c 'import torch' 2>/dev/null; then
  skip "no PyTorch on this node" "PyTorch beside" "gpu_peers.py"
else
  # It begins nothing in the last minute; what it has said until then stands.
  attempt 525 "PyTorch beside" python3 "$here/share/gpu_peers.py" --program "$here/bin/spillway" --folder "$out/runs" \
    --seconds $((465 - SECONDS))
  if [ $status -eq 124 ] && grep -q tokens_per_s "$log"; then row "PyTorch beside" "cut short"; else row "PyTorch beside" "$(outcome)"; fi
  detail "PyTorch beside" "$(grep -vE 'Warning|warn' "$log" | tail -n 80)"
fi

{
  echo "# Spillway on $(hostname): ${#failed[@]} of ${#rows[@]} steps failed, $SECONDS s"
  echo
  cat "$out/logs/facts.md"
  printf '\n| step | outcome | s | command |\n|---|---|---|---|\n'
  printf '%s\n' "${rows[@]}"
  echo
  printf '%s\n' "${details[@]}"
} >"$out/report.md"
rm -rf "$out"/{tmp,cache,runs}
count_of() { printf '%s\n' "${rows[@]}" | grep -c "^| [^|]* | $1"; }
counts="${#rows[@]} steps, ${#failed[@]} failed, $(count_of skipped) skipped, $(count_of 'cut short') cut short"
echo "gpu_check: $counts, $SECONDS s; $out/report.md"
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
