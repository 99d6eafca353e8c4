#!/usr/bin/env bash
# Checks Spillway on a node with a GPU, in less than nine minutes, without root and without network: every test that needs a GPU, short
# trainings, the benches, PyTorch beside them, and NVIDIA's compute-sanitizer over the quick tests for as long as time is left. Lies in the
# archive of `scripts/bundle.sh --check`; unpack that anywhere and run
#   ./gpu_check.sh [FOLDER]    writes FOLDER/report.md (default: gpu_check.out) and nothing outside of FOLDER
# Each step has a second, counted from the beginning, by which it is ended; what is left over is the next one's. All are run whatever fails,
# and the report is there after each. A step is ok, slow (it is right, but below what is promised of its speed), cut short, skipped, or
# failed: then the exit status is 1. Where there is no GPU, what needs one is skipped and says why.
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
# NVIDIA's libraries may be there with PyTorch alone, or where nobody told the loader.
for folder in $(timeout 20 python3 -c 'import sys; print("\n".join(p + "/nvidia/*/lib" for p in sys.path if p))' 2>/dev/null) \
  "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda-*/lib64 ${CONDA_PREFIX:+"$CONDA_PREFIX/lib"}; do
  for libraries in $folder; do [ ! -d "$libraries" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries; done
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}

rows=() details=() failed=() status=0 log="" gpu="" running="" facts=""
trap 'kill "$running" 2>/dev/null; report; exit 130' INT TERM

# attempt BY NAME COMMAND...: runs it until second BY with its output in $log; its status is in $status, 124 where it was ended.
attempt() {
  local by=$1 name=$2 begin=$SECONDS left=$(($1 - SECONDS))
  shift 2
  log=$out/logs/${name//[^A-Za-z0-9.-]/_}.log command=$*
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

# row NAME OUTCOME: what came of the last attempt; FAILED ones show their log's end.
row() {
  local shown=${command//$here\//}
  shown=${shown//$out/OUT}
  rows+=("| $1 | $2 | $took | \`${shown:0:240}\` |")
  printf '%4d s  %-34s %s\n' $SECONDS "$1" "${2:0:120}"
  case $2 in
    ok*|slow*|"cut short"*|skipped*) ;;
    *) failed+=("$1") && detail "$1: the end of its log" "$(tail -n 60 "$log")" ;;
  esac
  report
}
detail() { details+=("### $1"$'\n\n```\n'"$2"$'\n```\n'); }
skip() { took=0 command=$3 && row "$2" "skipped: $1"; }
report() {
  {
    echo "# Spillway on $(hostname): ${#failed[@]} of ${#rows[@]} steps failed, $SECONDS s"
    printf '\n%s\n\n| step | outcome | s | command |\n|---|---|---|---|\n' "$facts"
    printf '%s\n' "${rows[@]}" '' "${details[@]}"
  } >"$out/report.md"
}

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
  awk '/: Skipped$/ {getline reason} /^\[  SKIPPED \] .* ms\)$/ {++count[reason]} END {for (r in count) print count[r] " of them: " r}' "$1" |
    sort -rn
}

# Of a failing log of tests: what the first failure said, and the end where there is none.
first_failure() {
  awk '/^\[ RUN      \]/ {n = 0}
       {lines[n++] = $0}
       /^\[  FAILED  \] .* ms\)$/ {for (i = 0; i < n && i < 40; ++i) print lines[i]; found = 1; exit}
       END {if (!found) for (i = n > 25 ? n - 25 : 0; i < n; ++i) print lines[i]}' "$1"
}

# gtests BY NAME PROGRAM SUITE...: each suite in a process of its own, some at once: a GPU that one of them leaves in disorder is not the
# others'. A skip counts as a failure where there is a GPU, if it is not for the want of several.
one_suite='timeout --foreground -k 5 90 "$1" --gtest_color=no --gtest_filter="$3.*" >"$2/${3//\//_}.log" 2>&1 </dev/null ||
           echo "== $3 ended with $?" >>"$2/${3//\//_}.log"'
gtests() {
  local by=$1 name=$2 program=$3 folder=$out/logs/$3 all passed skipped reasons other="" bad ended
  shift 3
  mkdir -p "$folder" && printf '%s\n' "$@" >"$folder/suites"
  attempt "$by" "$name" xargs -a "$folder/suites" -P 4 -n 1 bash -c "$one_suite" _ "$here/bin/$program" "$folder"
  command="$program, each suite: $*" all=$folder/all
  cat "$folder"/*.log >"$all" 2>/dev/null
  passed=$(grep -cE '^\[       OK \]' "$all") skipped=$(grep -cE '^\[  SKIPPED \] .* ms\)$' "$all") reasons=$(skip_reasons "$all")
  bad=$(sed -n 's/^\[  FAILED  \] \([^ ,]*\).* ms)$/\1/p' "$all") ended=$(sed -n '/ended with 1$/d; s/^== //p' "$all")
  [ -z "$gpu" ] || other=$(grep -vE '(several|two|2|3|4) (or more )?GPUs|second GPU|emulated GPUs|libnccl' <<<"$reasons" | grep -v '^$')
  [ -z "$reasons" ] || detail "$name: skipped" "$reasons"
  if [ -n "$bad$ended" ]; then
    detail "$name: failed" "$bad"$'\n'"$ended"
    for one in $(grep -lE '^\[  FAILED  \] .* ms\)$|^== ' "$folder"/*.log); do
      detail "$(basename "$one" .log)" "$(first_failure "$one")"
    done
    log=$folder/suites
    row "$name" "FAILED: $(wc -w <<<"$bad") tests, ${ended:+and $(head -n 1 <<<"$ended"), }$passed passed"
  elif [ $status -ne 0 ]; then row "$name" "$(outcome), $passed passed"
  elif [ -n "$other" ]; then row "$name" "FAILED: $passed passed, $skipped skipped though there is a GPU"
  elif [ "$passed" -gt 0 ] && [ -n "$gpu" ]; then row "$name" "ok, $passed passed, $skipped skipped"
  elif [ -n "$reasons" ]; then row "$name" "skipped: $(head -n 1 <<<"$reasons")"
  else row "$name" "skipped: this build has none of them"
  fi
}

# ---- what this is and where
attempt 20 "find a GPU" "$here/bin/test_device" --gtest_color=no --gtest_filter=DeviceQuery.DescribesEveryGpu
no_gpu=$(skip_reasons "$log" | sed 's/^[0-9]* of them: \(needs a GPU: \)\?//')
[ -n "$no_gpu" ] || gpu=yes
echo "Spillway $("$here/bin/spillway" --version | awk '{print $2}') of $(cat "$here/share/revision"): ${no_gpu:-there is a GPU}"
# A GPU that cannot be used is no reason to skip: the driver is older than 580, say.
if [ $status -ne 0 ]; then row "find a GPU" "$(outcome)"
elif [ -z "$gpu" ] && [ -e /dev/nvidiactl ] && [ "${CUDA_VISIBLE_DEVICES-all}" ]; then row "find a GPU" "FAILED: $no_gpu"
fi
step 60 doctor "$here/bin/spillway" doctor
detail "doctor" "$(cat "$log")"
facts=$(
  system=$(. /etc/os-release 2>/dev/null && echo "$PRETTY_NAME")
  memory=$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)
  asked=name,driver_version,memory.total,clocks.max.sm,power.limit
  asks='import torch; print(torch.__version__, "with CUDA", torch.version.cuda)'
  torch=$(timeout 40 python3 -c "$asks" 2>&1 | tail -n 1)
  echo "- archive: $("$here/bin/spillway" --version | head -n 1), revision $(cat "$here/share/revision")"
  echo "- node: $(uname -sr), $system, $(nproc) cores, $memory"
  echo "- GPU: $(timeout 20 nvidia-smi --query-gpu=$asked --format=csv,noheader 2>/dev/null || echo "nvidia-smi is not there or found none")"
  echo "- PyTorch: ${torch:-none}"
)

# ---- correctness: the tests that the machine they are built on skips
rooms=$(grep -v '^#' "$here/share/expected_skips.txt" | cut -d/ -f1 | sort -u)
count=$(wc -w <<<"$rooms") by=60
for room in $rooms; do
  by=$((by + 120 / count))
  mapfile -t suites < <(sed -n "s|^$room/\([^.]*\)\..*|\1|p" "$here/share/expected_skips.txt" | sort -u)
  [ ! -e "$here/bin/test_$room" ] || gtests $by "tests of $room" "test_$room" "${suites[@]}"
done

# Words in no order: the loss falls fast, but not to nothing.
awk 'BEGIN {n = split("and the river runs over stones under light of a long day", words, " "); state = 12345
            for (i = 0; i < 400000; ++i) {
              state = (state * 69069 + 1) % 4294967296
              printf "%s ", words[int(state / 65536) % n + 1]
            }}' >"$out/runs/text.txt"
train=("$here/bin/spillway" train --tokenizer bytes --data "$out/runs/text.txt" --seed 5 --no-final-checkpoint --device cuda)
column() { sed -n "s/.*\"$2\":\([-0-9.e+]*\).*/\1/p" "$out/runs/$1/metrics.jsonl" 2>/dev/null; }
# Of the steps after the second.
median() { column "$1" "$2" | tail -n +3 | sort -g | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'; }

# trains BY NAME RUN FLAGS...: and learns.
trains() {
  if [ -z "$gpu" ]; then skip "$no_gpu" "$2" "spillway train --device cuda ${*:4}"; return; fi
  attempt "$1" "$2" "${train[@]}" --out "$out/runs/$3" "${@:4}"
  local losses
  losses=$(column "$3" loss)
  if [ $status -eq 3 ]; then row "$2" "skipped: $(tail -n 1 "$log")"
  elif [ $status -ne 0 ]; then row "$2" "$(outcome)"
  elif ! tail -n 1 "$out/runs/$3/metrics.jsonl" | grep -q '"loss":[0-9]'; then row "$2" "FAILED: the last loss is no number"
  elif ! awk 'NR == 1 {first = $1} {last = $1} END {exit !(NR > 1 && last < 0.9 * first)}' <<<"$losses"; then
    row "$2" "FAILED: the loss does not fall"
  else row "$2" "ok, loss $(head -n 1 <<<"$losses") to $(tail -n 1 <<<"$losses"), $(median "$3" tokens_per_s) tokens/s"
  fi
  cp "$out/runs/$3/metrics.jsonl" "$out/logs/metrics-$3.jsonl" 2>/dev/null
  detail "$2: the end of its log" "$(tail -n 25 "$log")"
}
# compare NAME BODY...: of what trainings said; nothing where one of them is missing.
compare() {
  local name=$1
  shift
  took=0 command="compare what they said" log=$out/logs/compare.log
  row "$name" "$("$@")"
}
# ratio WHAT VALUE LEAST [MOST]: whether it is as promised.
ratio() {
  awk -v v="$2" -v least="$3" -v most="${4:-}" -v what="$1" 'BEGIN {
    said = (v >= least && (most == "" || v <= most)) ? "ok" : "slow"
    printf "%s, %.3f %s (promised: %s)", said, v, what, most == "" ? least " or more" : least " to " most}'
}
of() { awk -v a="$1" -v b="$2" 'BEGIN {print a / b}'; }

tiny=(--model gpt2-tiny --sequence-length 128 --micro-batch-size 8 --steps 60 --learning-rate 2e-3)
small=(--model gpt2-124m --sequence-length 512 --micro-batch-size 4 --gradient-accumulation-steps 2 --steps 12 --learning-rate 1e-3
       --warmup-steps 2)
on_gpu=(--place-parameters device --place-gradients device --place-optimizer device)
on_host=(--place-parameters host --place-gradients host --place-optimizer host)
trains 190 "gpt2-tiny, 60 steps" tiny "${tiny[@]}"
for precision in fp16 tf32; do trains 195 "gpt2-tiny in $precision" $precision "${tiny[@]}" --precision $precision; done
trains 210 "gpt2-124m on the GPU" whole "${small[@]}" "${on_gpu[@]}"
trains 225 "gpt2-124m, all state on the host" offloaded "${small[@]}" "${on_host[@]}"
same_bits() {
  paste <(column whole loss) <(column whole grad_norm) <(column offloaded loss) <(column offloaded grad_norm) >"$log"
  awk '$1 != $3 || $2 != $4 {exit 1}' "$log" && echo ok || echo "FAILED: they differ"
}
[ -z "$(column whole loss)" ] || [ -z "$(column offloaded loss)" ] || compare "the same bits in both" same_bits

# ---- speed of the whole: what spills, beside what does not, and beside what was foretold
gpu_step 245 "rates of this node" "$here/bin/spillway" bench memory matmul cpu-adam link
[ -z "$gpu" ] || detail "rates of this node" "$(cat "$log")"
mkdir -p "$out/runs/llama-1.5b"
cat >"$out/runs/llama-1.5b/config.json" <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 2048, "head_dim": 128,
 "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000,
 "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false, "attention_bias": false,
 "mlp_bias": false, "bos_token_id": 1, "eos_token_id": 2}
JSON
large=(--model "$out/runs/llama-1.5b" --from-scratch --sequence-length 2048 --micro-batch-size 4 --steps 7 --warmup-steps 2
       --learning-rate 3e-4)
trains 280 "llama-1.5b on the GPU" large "${large[@]}" --gradient-accumulation-steps 8 "${on_gpu[@]}"
trains 320 "llama-1.5b, all state on the host" large-host "${large[@]}" --gradient-accumulation-steps 8 "${on_host[@]}"
trains 355 "llama-1.5b in 10 GiB" large-10GiB "${large[@]}" --gradient-accumulation-steps 4 --device-memory 10GiB
share=$(median large matmul_share) whole=$(median large tokens_per_s) spilled=$(median large-host tokens_per_s)
step_ms=$(median large-10GiB step_ms) predicted_ms=$(median large-10GiB predicted_ms)
[ -z "$share" ] || compare "llama-1.5b against matmul" ratio "of the measured rate of matrix products" "$share" 0.5
[ -z "$whole" ] || [ -z "$spilled" ] || compare "llama-1.5b, host against GPU" ratio "of the tokens/s" "$(of "$spilled" "$whole")" 0.95
[ -z "$step_ms" ] || [ -z "$predicted_ms" ] ||
  compare "llama-1.5b in 10 GiB, foretold" ratio "times the predicted step" "$(of "$step_ms" "$predicted_ms")" 0.85 1.15

# ---- speed of the parts
# with_verdicts OUTCOME LOG: slow where a line "verdict: " of the log says so.
with_verdicts() {
  local said
  said=$(sed -n 's/^verdict: //p' "$2" | paste -sd';')
  if [ "$1" = ok ] && [ -n "$said" ] && ! awk '/^verdict:/ {if (/does not reach/) bad = 1; for (i = 1; i < NF; ++i) if ($(i + 1) == "of" &&
       $i ~ /^[0-9]+$/ && $i != $(i + 2)) bad = 1} END {exit bad}' "$2"; then
    echo "slow, $said"
  else
    echo "$1${said:+, $said}"
  fi
}
bench() {
  if [ ! -e "$here/bin/$3" ]; then skip "not in this archive" "$2" "$3"; return; fi
  attempt "$1" "$2" "$here/bin/$3" --benchmark_color=false
  local why
  why=$(sed -n "s/^skipped: //p; s/.*ERROR OCCURRED: '\(.*\)'.*/\1/p" "$log" | head -n 1)
  if [ -n "$why" ]; then
    row "$2" "$([ -n "$gpu" ] && echo FAILED || echo skipped): $why"
    return
  fi
  row "$2" "$(with_verdicts "$(outcome)" "$log")"
  [ $status -ne 0 ] || detail "$2" "$(grep -vE '^(Run on|  L[123]|CPU Caches|Load Average|\*\*\*)' "$log" | cut -c1-200)"
}
bench 375 "bench of memory" bench_memory_cuda
bench 400 "bench of matrix products" bench_matmul_cuda
if [ -z "$gpu" ]; then
  skip "$no_gpu" "PyTorch beside" "gpu_peers.py"
elif ! timeout 40 python3 -c 'import torch' >/dev/null 2>&1; then
  skip "no PyTorch on this node" "PyTorch beside" "gpu_peers.py"
  bench 425 "bench of attention" bench_attention_cuda
else
  # It begins nothing in the last minute; what it has said until then stands.
  attempt 495 "PyTorch beside" python3 "$here/share/gpu_peers.py" --programs "$here/bin" --folder "$out/runs" --seconds $((430 - SECONDS))
  missing=$(sed -n 's/^incomplete: //p' "$log" | paste -sd';')
  case $status in
    0) row "PyTorch beside" "$(with_verdicts ok "$log")" ;;
    3) row "PyTorch beside" "cut short: without $missing$(with_verdicts "" "$log")" ;;
    124) row "PyTorch beside" "cut short by its second$(with_verdicts "" "$log")" ;;
    *) row "PyTorch beside" "$(outcome)" ;;
  esac
  detail "PyTorch beside" "$(grep -vE 'Warning|warn' "$log" | tail -n 80)"
fi
gpu_step 520 selftest "$here/bin/spillway" selftest --device cuda

# ---- compute-sanitizer: ended in the midst of the tests it says nothing against what it has seen
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
sanitize() {
  local by=$1 name=$2 tool=$3 program=$4 filter=$5 passed complaints
  if [ -z "$gpu" ]; then skip "$no_gpu" "$name" "compute-sanitizer --tool $tool $program"; return; fi
  if [ -z "$sanitizer" ]; then skip "no compute-sanitizer on this node" "$name" "compute-sanitizer --tool $tool $program"; return; fi
  attempt "$by" "$name" "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 86 --report-api-errors no "${@:6}" \
    env SPILLWAY_TEST_SEPARATE_MEMORY=1 "$here/bin/$program" --gtest_color=no --gtest_filter="$filter"
  passed=$(grep -cE '^\[       OK \]' "$log")
  complaints=$(grep -E '^=========' "$log" |
    grep -vcE 'COMPUTE-SANITIZER|ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards|^=========[[:space:]]*$')
  [ $status -ne 124 ] || complaints=$(grep -cE '^========= (Invalid|Error: Race|Warning: Race|Uninitialized|Barrier)' "$log")
  if [ "$complaints" -gt 0 ]; then row "$name" "FAILED: it complains, after $passed tests"
  elif [ $status -eq 124 ]; then row "$name" "cut short after $passed tests, nothing found"
  elif [ $status -ne 0 ]; then row "$name" "$(outcome)"
  elif [ "$passed" -eq 0 ]; then row "$name" "FAILED: it ran no test"
  else row "$name" "ok, $passed tests"
  fi
}
left=$((530 - SECONDS)) from=$SECONDS
sanitize $((from + left * 4 / 10)) "memcheck of kernels" memcheck test_kernels '*Twins*'
sanitize $((from + left * 6 / 10)) "memcheck of training" memcheck test_parallel 'Models/OnGpu.*'
# NVIDIA's own kernels are not looked at.
sanitize $((from + left * 8 / 10)) "racecheck of kernels" racecheck test_kernels '*Twins*-MatmulTwins*:Conv*'
sanitize 530 "initcheck of kernels" initcheck test_kernels '*Twins*-MatmulTwins*:Conv*' --check-api-memory-access no

rm -rf "$out"/{tmp,cache,runs}
count_of() { printf '%s\n' "${rows[@]}" | grep -c "^| [^|]* | $1"; }
counts="${#rows[@]} steps, ${#failed[@]} failed, $(count_of slow) slow, $(count_of skipped) skipped, $(count_of 'cut short') cut short"
echo "gpu_check: $counts, $SECONDS s; $out/report.md"
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
