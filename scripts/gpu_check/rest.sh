# gpu_check.sh rest: sourced by it. What `first` has no time for, the most important first. The seconds of all steps, with the 25 of
# gpu_check.sh itself, are less than its 540.

for room in $(grep -v '^#' "$here/share/expected_skips.txt" | cut -d/ -f1 | sort -u | grep -vE '^(device|kernels|optim|eager)$'); do
  room_tests "$([ "$room" = parallel ] && echo 60 || echo 12)" "$room"
done
python_tests() {
  turn 25
  without_gpu "tests of Python" test_gpu.py && return
  python_absent "tests of Python" test_gpu.py && return
  attempt "tests of Python" env PYTHONPATH="$here/share/python" python3 -m pytest -q -p no:cacheprovider "$here/share/python_tests/test_gpu.py"
  row "tests of Python" "$(outcome), $(tail -n 1 "$log")"
}
python_tests

small=("${budget[@]}" "${shortest[@]}")
for precision in fp16 tf32 fp8; do trains 6 "gpt2-tiny in $precision" $precision "${small[@]}" "${on_gpu[@]}" --precision $precision; done
trains 15 "gpt2-124m, 16 x 1024" gpt2 "${budget[@]}" "${gpt2[@]}" --steps $steps "${on_gpu[@]}" --recompute none
trains 15 "gpt2-124m, attention by cuDNN" gpt2-cudnn "${budget[@]}" "${gpt2[@]}" --steps $steps "${on_gpu[@]}" --recompute none --attention cudnn
compared "gpt2-124m, our attention against cuDNN's" "of the tokens/s" \
  "$(ratio "$(median gpt2 tokens_per_s)" "$(median gpt2-cudnn tokens_per_s)")" 0.9
trains 20 "1.5B in $narrow" narrow "${large[@]}" --steps $steps --device-memory $narrow --host-memory "${budget[3]}"
compared "1.5B in $narrow, foretold" "times the predicted step" "$(ratio "$(median narrow step_ms)" "$(median narrow predicted_ms)")" 0.85 1.15

# NVIDIA's own kernels are looked at by memcheck alone.
try_sanitizer 6
ours=$(suites_of kernels | grep -vE '^(Matmul|Conv|Cudnn)')
sanitize 60 "memcheck of all kernels" memcheck kernels "$(suites_of kernels)"
sanitize 25 "memcheck of training" memcheck parallel "$(suites_of parallel | grep '^Models/OnGpu$')"
sanitize 35 "racecheck of all kernels" racecheck kernels "$ours"
sanitize 15 "synccheck of all kernels" synccheck kernels "$ours"
sanitize 25 "initcheck of all kernels" initcheck kernels "$ours" --check-api-memory-access no

# gpu_peers.py makes one judgement for each of these names. Each is a row of its own, which is absent if gpu_peers.py ended before it.
promises=("gpt2-124m against PyTorch" "llama-1.5b against PyTorch" "attention against FlashAttention-2" "attention against cuDNN")
beside() {
  local name said incomplete heard
  turn 100
  without_gpu "PyTorch, compiled, beside" "gpu_peers.py" && return
  # It begins nothing in the last fifth; what it has said until then stands.
  attempt "PyTorch, compiled, beside" python3 "$here/share/gpu_peers.py" --programs "$here/bin" --folder "$runs" --seconds $((has * 8 / 10))
  heard=$log incomplete=$(sed -n 's/^incomplete: //p' "$log")
  case $status in
    0) row "PyTorch, compiled, beside" "$([ -z "$incomplete" ] && echo ok || echo "FAILED: it is incomplete and does not say so")" ;;
    3) row "PyTorch, compiled, beside" "absent: $(paste -sd';' <<<"$incomplete")" ;;
    *) row "PyTorch, compiled, beside" "$(outcome)" ;;
  esac
  said=$(tables peers "$heard") && show "PyTorch, compiled, beside" "$said"
  for name in "${promises[@]}"; do
    said=$(sed -n "s/^verdict: $name: //p" "$heard" | tail -n 1)
    case $said in
      reached*) judged "$name" "ok, $said" gpu_peers.py ;;
      "not reached"*) judged "$name" "slow, $said" gpu_peers.py ;;
      *) judged "$name" "absent: nothing was compared" gpu_peers.py ;;
    esac
  done
}
beside

# look SECONDS NAME RANGE FLAGS...: the kernels of one NVTX range of the first step of a training, as ncu measures them.
ncu=$(tool ncu)
metrics=gpu__time_duration.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed,dram__throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,dram__bytes.sum,sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active,smsp__inst_executed.sum
metrics+=,sm__warps_active.avg.pct_of_peak_sustained_active,launch__registers_per_thread
look() {
  local said run csv
  turn "$1"
  without_gpu "$2" "ncu spillway train ${*:4}" && return
  if [ -z "$ncu" ]; then judged "$2" "absent: no ncu on this node" ncu; return; fi
  run=$runs/ncu-${2//[^A-Za-z0-9]/-} csv=$logs/ncu-${2//[^A-Za-z0-9]/-}.csv
  attempt "$2" "$ncu" --target-processes all --nvtx --nvtx-include "$3/" --metrics $metrics --clock-control none --csv --page raw \
    --print-units base --log-file "$csv" "${train[@]}" --out "$run" --no-final-checkpoint --steps 1 --recompute none "${on_gpu[@]}" "${@:4}"
  if grep -qs ERR_NVGPUCTRPERM "$csv" "$log"; then row "$2" "absent: this user may not read the GPU's counters (ERR_NVGPUCTRPERM)"
  elif [ $status -ne 0 ]; then row "$2" "$(outcome)"
  elif said=$(tables ncu "$csv"); then row "$2" "ok, $(tail -n 1 <<<"$said")" && show "$2" "$said"
  else row "$2" "FAILED: $said"
  fi
}
# Block 0 embeds.
look 20 "a block's forward" "Forward 1" --device-memory $narrow "${blocks[@]}"
look 20 "a block's backward" "Backward 1" --device-memory $narrow "${blocks[@]}"
