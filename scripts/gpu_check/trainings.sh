# gpu_check.sh trainings: sourced by it. Trainings that fit and that spill, beside each other and beside what was foretold; the GPU's time
# by kernel, from nsys; the benches.

source "$here/share/gpu_check/models.sh"

# trains SECONDS NAME RUN FLAGS...: and learns.
trains() {
  without_gpu "$2" "spillway train --device cuda ${*:4}" && return
  attempt "$1" "$2" "${train[@]}" --out "$out/runs/$3" "${@:4}"
  learnt "$2" "$3"
}
# learnt NAME RUN: the row of the last attempt, which trained.
learnt() {
  local losses flops
  losses=$(column "$2" loss) flops=$(median "$2" flops_per_s)
  if [ $status -eq 3 ]; then row "$1" "absent: $(tail -n 1 "$log")"
  elif [ $status -eq 2 ] && grep -qF '[attention]' "$log"; then row "$1" "absent: $(grep -F '[attention]' "$log" | tail -n 1)"  # no cuDNN
  elif [ $status -ne 0 ]; then row "$1" "$(outcome)"
  elif ! tail -n 1 "$out/runs/$2/metrics.jsonl" 2>&1 | grep -q '"loss":[0-9]'; then row "$1" "FAILED: the last loss is no number"
  elif ! awk 'NR == 1 {first = $1} {last = $1} END {exit !(NR > 1 && last < 0.9 * first)}' <<<"$losses"; then
    row "$1" "FAILED: the loss does not fall"
  elif [ -z "$flops" ]; then row "$1" "FAILED: it says nothing of its speed"
  else
    row "$1" "ok, loss $(head -n 1 <<<"$losses") to $(tail -n 1 <<<"$losses"), $(median "$2" tokens_per_s) tokens/s, $(of "$flops" 1e12
      ) TFLOP/s"
  fi
  cp "$out/runs/$2/metrics.jsonl" "$logs/metrics-$2.jsonl" 2>/dev/null
  detail "$1: the end of its log" "$(tail -n 40 "$log")"
}
of() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.4g", a / b}'; }
# compared NAME WHAT VALUE LEAST [MOST]: whether it is as promised; the value is empty where a training that it is of is missing.
compared() {
  local said="absent: a training it is of said nothing"
  [ -z "$3" ] || said=$(awk -v v="$3" -v least="$4" -v most="${5:-}" -v what="$2" 'BEGIN {
    said = (v >= least && (most == "" || v <= most)) ? "ok" : "slow"
    printf "%s, %.3f %s (promised: %s)", said, v, what, most == "" ? least " or more" : least " to " most}')
  judged "$1" "$said" "compare what they said"
}
ratio() { [ -z "$1" ] || [ -z "$2" ] || of "$1" "$2"; }

# kernels SECONDS NAME RUN STEPS FLAGS...: a training under nsys, and where the GPU's time went, by NVTX range and kernel.
nsys=$(tool nsys)
kernels() {
  local said
  without_gpu "$2" "nsys profile spillway train ${*:5}" && return
  if [ -z "$nsys" ]; then
    judged "$2" "absent: no nsys on this node; spillway's own --profile is below" "nsys profile"
    return
  fi
  attempt "$1" "$2" "$nsys" profile --trace=cuda,nvtx --sample=none --cpuctxsw=none --force-overwrite=true --export=sqlite \
    --output="$out/runs/$3" "${train[@]}" --out "$out/runs/$3" "${@:5}"
  if [ $status -ne 0 ]; then row "$2" "$(outcome)"
  elif said=$(tables kernels "$out/runs/$3.sqlite" "$4"); then
    row "$2" "ok, $(tail -n 1 <<<"$said")" && show "$2" "$said"
  else row "$2" "FAILED: $said"
  fi
  cp "$out/runs/$3.nsys-rep" "$logs" 2>/dev/null
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
bench() {
  local why said
  if [ ! -e "$here/bin/$3" ]; then judged "$2" "absent: not in this archive" "$3"; return; fi
  attempt "$1" "$2" "$here/bin/$3" --benchmark_color=false --benchmark_out="$logs/$3.json" --benchmark_out_format=json
  why=$(sed -n "s/^skipped: //p" "$log" | head -n 1)
  if [ $status -ne 0 ]; then row "$2" "$(outcome)"
  elif [ -n "$why" ] && [ -z "$gpu" ]; then row "$2" "absent: $why"
  elif [ -n "$why" ]; then row "$2" "FAILED: skipped though there is a GPU: $why"
  elif ! said=$(tables bench "$logs/$3.json"); then row "$2" "FAILED: $said"
  else row "$2" "$(with_verdicts ok "$log")" && show "$2" "$said"
  fi
}

trains 20 "gpt2-tiny, 60 steps" tiny "${shortest[@]}"
for precision in fp16 tf32; do trains 15 "gpt2-tiny in $precision" $precision "${shortest[@]}" --precision $precision; done
trains 25 "gpt2-124m on the GPU" whole "${small[@]}" "${on_gpu[@]}"
trains 30 "gpt2-124m, all state on the host" offloaded "${small[@]}" "${on_host[@]}"
numbers=$(paste <(column whole loss) <(column whole grad_norm) <(column offloaded loss) <(column offloaded grad_norm))
if [ -z "$(column whole loss)" ] || [ -z "$(column offloaded loss)" ]; then
  judged "the same bits in both" "absent: a training it is of said nothing" "compare what they said"
elif awk '$1 != $3 || $2 != $4 {exit 1}' <<<"$numbers"; then judged "the same bits in both" ok "compare what they said"
else
  judged "the same bits in both" "FAILED: they differ" "compare what they said"
  detail "the same bits in both: loss and norm of one, of the other" "$numbers"
fi

gpu_step 45 "rates of this node" "$here/bin/spillway" bench memory matmul cpu-adam link
[ -z "$gpu" ] || detail "rates of this node" "$(cat "$log")"
trains 30 "gpt2-124m, 16 x 1024" gpt2 "${gpt2[@]}" --steps "$steps" "${on_gpu[@]}" --recompute none --profile
trains 30 "gpt2-124m, attention by cuDNN" gpt2-cudnn "${gpt2[@]}" --steps "$steps" "${on_gpu[@]}" --recompute none --profile \
  --attention cudnn
large+=(--steps "$steps" --gradient-accumulation-steps)
trains 50 "llama-1.5b on the GPU" large "${large[@]}" $eight "${on_gpu[@]}" --profile
trains 60 "llama-1.5b, all state on the host" large-host "${large[@]}" $eight "${on_host[@]}" --profile
trains 60 "llama-1.5b in $narrow" large-narrow "${large[@]}" $four --device-memory $narrow
compared "gpt2-124m against matmul" "of the measured rate of matrix products" "$(median gpt2 matmul_share)" 0.5
compared "llama-1.5b against matmul" "of the measured rate of matrix products" "$(median large matmul_share)" 0.5
compared "gpt2-124m, our attention against cuDNN's" "of the tokens/s" \
  "$(ratio "$(median gpt2 tokens_per_s)" "$(median gpt2-cudnn tokens_per_s)")" 0.9
compared "llama-1.5b, host against GPU" "of the tokens/s" "$(ratio "$(median large-host tokens_per_s)" "$(median large tokens_per_s)")" 0.95
compared "llama-1.5b in $narrow, foretold" "times the predicted step" \
  "$(ratio "$(median large-narrow step_ms)" "$(median large-narrow predicted_ms)")" 0.85 1.15
kernels 40 "kernels of gpt2-124m" gpt2-nsys "$steps" "${gpt2[@]}" --steps "$steps" "${on_gpu[@]}" --recompute none
kernels 50 "kernels of llama-1.5b" large-nsys "$steps" "${large[@]}" 1 "${on_gpu[@]}"
bench 40 "bench of memory" bench_memory_cuda
bench 60 "bench of matrix products" bench_matmul_cuda
bench 40 "bench of attention" bench_attention_cuda
said=$(sed -n 's/^not measured: //p' "$log" | head -n 1)
[ -z "$said" ] || judged "bench of cuDNN's attention" "absent: $said" bench_attention_cuda
