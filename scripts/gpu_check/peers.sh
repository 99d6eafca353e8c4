# gpu_check.sh peers: sourced by it. PyTorch beside ours in the same minutes, and ncu on one block of each direction.

source "$here/share/gpu_check/models.sh"

# What gpu_peers.py judges; each is a row of its own, and absent where it did not come to it.
promises=("gpt2-124m against PyTorch" "llama-1.5b against PyTorch" "attention against FlashAttention-2" "attention against cuDNN")
beside() {
  local name said incomplete has heard
  without_gpu "PyTorch beside" "gpu_peers.py" && return
  # It begins nothing in the last fifth; what it has said until then stands.
  has=$(seconds_of 330)
  attempt 330 "PyTorch beside" python3 "$here/share/gpu_peers.py" --programs "$here/bin" --folder "$out/runs" --seconds $((has * 8 / 10))
  heard=$log incomplete=$(sed -n 's/^incomplete: //p' "$log")
  case $status in
    0) row "PyTorch beside" "$([ -z "$incomplete" ] && echo ok || echo "FAILED: it is incomplete and does not say so")" ;;
    3) row "PyTorch beside" "absent: $(paste -sd';' <<<"$incomplete")" ;;
    *) row "PyTorch beside" "$(outcome)" ;;
  esac
  said=$(tables peers "$heard") && show "PyTorch beside" "$said"
  for name in "${promises[@]}"; do
    said=$(sed -n "s/^verdict: $name: //p" "$heard" | tail -n 1)
    case $said in
      reached*) judged "$name" "ok, $said" gpu_peers.py ;;
      "not reached"*) judged "$name" "slow, $said" gpu_peers.py ;;
      *) judged "$name" "absent: nothing was compared" gpu_peers.py ;;
    esac
  done
}

# look SECONDS NAME RANGE FLAGS...: the kernels of one NVTX range of the first step of a training, as ncu measures them.
ncu=$(tool ncu)
metrics=gpu__time_duration.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed,dram__throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,dram__bytes.sum,sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active,smsp__inst_executed.sum
metrics+=,sm__warps_active.avg.pct_of_peak_sustained_active,launch__registers_per_thread
look() {
  local said run csv
  without_gpu "$2" "ncu spillway train ${*:4}" && return
  if [ -z "$ncu" ]; then judged "$2" "absent: no ncu on this node" ncu; return; fi
  run=$out/runs/ncu-${2//[^A-Za-z0-9]/-} csv=$logs/ncu-${2//[^A-Za-z0-9]/-}.csv
  attempt "$1" "$2" "$ncu" --target-processes all --nvtx --nvtx-include "$3/" --metrics $metrics --clock-control none --csv --page raw \
    --print-units base --log-file "$csv" "${train[@]}" --out "$run" --steps 1 --recompute none "${on_gpu[@]}" \
    --device-memory $looked "${@:4}"
  if grep -qs ERR_NVGPUCTRPERM "$csv" "$log"; then row "$2" "absent: this user may not read the GPU's counters (ERR_NVGPUCTRPERM)"
  elif [ $status -ne 0 ]; then row "$2" "$(outcome)"
  elif said=$(tables ncu "$csv"); then row "$2" "ok, $(tail -n 1 <<<"$said")" && show "$2" "$said"
  else row "$2" "FAILED: $said"
  fi
}

beside
# Block 0 embeds.
look 45 "a block's forward, gpt2-124m" "Forward 1" "${gpt2[@]}"
look 45 "a block's backward, gpt2-124m" "Backward 1" "${gpt2[@]}"
look 50 "a block's forward, llama-1.5b" "Forward 1" "${blocks[@]}"
look 50 "a block's backward, llama-1.5b" "Backward 1" "${blocks[@]}"
