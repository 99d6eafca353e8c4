# Sourced by gpu_check.sh: trainings and what is compared between them, the GPU's time by kernel, the benches, PyTorch beside.

source "$here/share/gpu_check/models.sh"

column() { sed -n "s/.*\"$2\":\([-0-9.e+]*\).*/\1/p" "$runs/$1/metrics.jsonl" 2>/dev/null; }
# The first two steps are not counted.
median() { column "$1" "$2" | tail -n +3 | sort -g | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'; }
of() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.4g", a / b}'; }
ratio() { [ -z "$1" ] || [ -z "$2" ] || of "$1" "$2"; }

# trains SECONDS NAME RUN FLAGS...: and learns.
trains() {
  turn "$1"
  without_gpu "$2" "spillway train --device cuda ${*:4}" && return
  attempt "$2" "${train[@]}" --out "$runs/$3" --no-final-checkpoint "${@:4}"
  learnt "$2" "$3"
}
# learnt NAME RUN [FEW]: the row of the last attempt, which trained; with FEW its loss need not fall, because few of its weights do.
learnt() {
  local losses flops
  losses=$(column "$2" loss) flops=$(median "$2" flops_per_s)
  if [ $status -eq 3 ]; then row "$1" "absent: $(tail -n 1 "$log")"
  elif [ $status -eq 2 ] && grep -qE '\[(attention|--precision)\]' "$log"; then  # no cuDNN, or a GPU without fp8
    row "$1" "absent: $(grep -E '\[(attention|--precision)\]' "$log" | tail -n 1)"
  elif [ $status -ne 0 ]; then row "$1" "$(outcome)${losses:+ after $(wc -l <<<"$losses") steps of $(tail -n 1 <<<"$(column "$2" step_ms)") ms}"
  elif ! tail -n 1 "$runs/$2/metrics.jsonl" 2>&1 | grep -q '"loss":[0-9]'; then row "$1" "FAILED: the last loss is no number"
  elif [ -z "${3-}" ] && ! awk 'NR == 1 {first = $1} {last = $1} END {exit !(NR > 1 && last < first)}' <<<"$losses"; then
    row "$1" "FAILED: the loss does not fall"
  elif [ -z "$flops" ]; then row "$1" "FAILED: it says nothing of its speed"
  else
    row "$1" "ok, loss $(head -n 1 <<<"$losses") to $(tail -n 1 <<<"$losses"), $(median "$2" tokens_per_s) tokens/s, $(of "$flops" 1e12
      ) TFLOP/s, step $(of "$(median "$2" step_ms)" 1) ms"
  fi
  cp "$runs/$2/metrics.jsonl" "$logs/metrics-$2.jsonl" 2>/dev/null
  detail "$1: the end of its log" "$(tail -n 25 "$log")"
}
# compared NAME WHAT VALUE LEAST [MOST]: whether it is as promised; the value is empty where a training that it is of is missing.
compared() {
  local said="absent: a training it is of said nothing"
  [ -z "$3" ] || said=$(awk -v v="$3" -v least="$4" -v most="${5:-}" -v what="$2" 'BEGIN {
    said = (v >= least && (most == "" || v <= most)) ? "ok" : "slow"
    printf "%s, %.3f %s (promised: %s)", said, v, what, most == "" ? least " or more" : least " to " most}')
  judged "$1" "$said" "compare what they said"
}
# the_same NAME RUN RUN...: whether losses and norms of all runs are the same numbers.
the_same() {
  local name=$1 first=$2 each said="" kinds=0
  for each in "${@:2}"; do
    [ -n "$(column "$each" loss)" ] || said="absent: a training it is of said nothing"
    cmp -s <(column "$first" loss; column "$first" grad_norm) <(column "$each" loss; column "$each" grad_norm) || kinds=1
  done
  if [ "$said" ]; then judged "$name" "$said" "compare what they said"
  elif [ $kinds -eq 0 ]; then judged "$name" ok "compare what they said"
  else
    judged "$name" "FAILED: they differ" "compare what they said"
    detail "$name: losses, a column each" "$(for each in "${@:2}"; do column "$each" loss >"$work/tmp/$each"; done; cd "$work/tmp" && paste "${@:2}")"
  fi
}

# kernels SECONDS NAME RUN STEPS FLAGS...: a training under our library over CUPTI: where the GPU's time went, by NVTX range and kernel.
kernels() {
  local said times=$runs/$3.times
  turn "$1"
  without_gpu "$2" "spillway train ${*:5}" && return
  if [ ! -e "$here/lib/libkernel_times.so" ]; then judged "$2" "absent: libkernel_times.so is not in this archive" kernel_times; return; fi
  attempt "$2" env CUDA_INJECTION64_PATH="$here/lib/libkernel_times.so" NVTX_INJECTION64_PATH=libcupti.so.13 KERNEL_TIMES="$times" \
    "${train[@]}" --out "$runs/$3" --no-final-checkpoint "${@:5}"
  if [ $status -ne 0 ]; then row "$2" "$(outcome)"
  elif said=$(tables kernels "$times" "$4"); then row "$2" "ok, $(tail -n 1 <<<"$said")" && show "$2" "$said"
  elif [[ $said == *problem:* ]]; then row "$2" "absent: ${said#*problem: }"
  else row "$2" "FAILED: $said"
  fi
}

# qlora SECONDS NAME: a base is trained and exported, then adapters over it in nf4.
qlora() {
  turn "$1"
  without_gpu "$2" "spillway train --lora" && return
  attempt "$2: its base" "${train[@]}" --out "$runs/base-run" "${budget[@]}" "${base[@]}" --steps $steps
  if [ $status -eq 0 ]; then
    has=$((has - took))
    attempt "$2: export" "$here/bin/spillway" export "$runs/base-run" --out "$runs/exported"
  fi
  if [ $status -eq 0 ]; then
    has=$((has - took))
    attempt "$2" "${train[@]}" --out "$runs/qlora" --no-final-checkpoint --model "$runs/exported" --lora 16 --base-weights nf4 "${budget[@]}" \
      "${lora[@]}" --steps $steps
  fi
  learnt "$2" qlora few
}

# with_verdicts OUTCOME LOG: slow where a line "verdict: " of the log says so.
with_verdicts() {
  local said
  said=$(sed -n 's/^verdict: //p' "$2" | paste -sd';')
  if [ -n "$said" ] && ! awk '/^verdict:/ {if (/does not reach/) bad = 1; for (i = 1; i < NF; ++i) if ($(i + 1) == "of" &&
       $i ~ /^[0-9]+$/ && $i != $(i + 2)) bad = 1} END {exit bad}' "$2"; then
    echo "slow, $said"
  else
    echo "$1${said:+, $said}"
  fi
}
# bench SECONDS NAME PROGRAM [FILTER]
bench() {
  local why said
  turn "$1"
  if [ ! -e "$here/bin/$3" ]; then judged "$2" "absent: not in this archive" "$3"; return; fi
  attempt "$2" "$here/bin/$3" --benchmark_color=false --benchmark_out="$logs/$3.json" --benchmark_out_format=json ${4:+--benchmark_filter="$4"}
  why=$(sed -n "s/^skipped: //p" "$log" | head -n 1)
  if [ $status -ne 0 ]; then row "$2" "$(outcome)"
  elif [ -n "$why" ] && [ -z "$gpu" ]; then row "$2" "absent: $why"
  elif [ -n "$why" ]; then row "$2" "FAILED: skipped though there is a GPU: $why"
  elif ! said=$(tables bench "$logs/$3.json"); then row "$2" "FAILED: $said"
  else row "$2" "$(with_verdicts ok "$log")" && show "$2" "$said"
  fi
}

# python_absent NAME COMMAND: whether the archive's Python module cannot be used here, and if so the row that says why.
python_absent() {
  local why
  if [ ! -d "$here/share/python/spillway" ]; then why="the Python module is not in this archive"
  elif ! why=$(PYTHONPATH=$here/share/python timeout 30 python3 -c 'import spillway' 2>&1); then
    why="$(tail -n 1 <<<"$why") (the archive's module is for $(cat "$here/share/python/for"), this is $(python3 --version 2>&1))"
  else return 1
  fi
  judged "$1" "absent: $why" "$2"
}
