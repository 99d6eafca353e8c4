# gpu_check.sh first: sourced by it. What a first contact with a GPU is to tell, the most important first. The seconds of all steps, with the
# 25 of gpu_check.sh itself, are less than its 420; what is left is for looking again at what failed.

room_tests 15 device || {
  judged "everything else" "absent: the most basic tests fail, so that nothing else would say more" test_device
  return
}
try_sanitizer 10
# What no emulator runs comes first: NVIDIA's libraries. Then what an emulator of tensor cores runs, and what it sees least of.
room_tests 50 kernels "Matmul Conv Cudnn Attention Expert Quantized CrossEntropy"
room_tests 10 optim
room_tests 6 eager
gpu_step 15 selftest "$here/bin/spillway" selftest --device cuda

small=("${budget[@]}" "${shortest[@]}")
trains 7 "gpt2-tiny on the GPU" tiny "${small[@]}" "${on_gpu[@]}"
trains 7 "gpt2-tiny, all state on the host" tiny-host "${small[@]}" "${on_host[@]}"
trains 7 "gpt2-tiny, all state on nvme" tiny-nvme "${small[@]}" --nvme "$work/nvme" "${on_host[@]/%host/nvme}"
the_same "the same bits on all three" tiny tiny-host tiny-nvme

gpu_step 15 "rates of this node" "$here/bin/spillway" bench memory matmul cpu-adam link
[ -z "$gpu" ] || detail "rates of this node" "$(cat "$log")"
trains 14 "1.5B on the GPU" large "${budget[@]}" "${large[@]}" --steps $steps "${on_gpu[@]}" --profile
trains 18 "1.5B, all state on the host" large-host "${budget[@]}" "${large[@]}" --steps $steps "${on_host[@]}" --profile
compared "1.5B against matmul" "of the measured rate of matrix products" "$(median large matmul_share)" 0.5
compared "1.5B, host against GPU" "of the tokens/s" "$(ratio "$(median large-host tokens_per_s)" "$(median large tokens_per_s)")" 0.95
compared "1.5B on the host, foretold" "times the predicted step" \
  "$(ratio "$(median large-host step_ms)" "$(median large-host predicted_ms)")" 0.85 1.15
kernels 14 "1.5B, kernels by name" large-kernels $steps "${budget[@]}" "${large[@]}" --steps $steps "${on_gpu[@]}"
trains 10 "a mixture of experts" experts "${budget[@]}" "${mixture[@]}" --steps $steps "${on_gpu[@]}"
qlora 14 "QLoRA over nf4"

sanitize 18 "racecheck of attention" racecheck kernels "$(suites_of kernels | grep '^AttentionTwins$')"
sanitize 18 "memcheck of kernels" memcheck kernels "$(suites_of kernels "Attention Expert Quantized CrossEntropy Norm" | head -n 8)"
bench 12 "bench of attention" bench_attention_cuda "gpt2-124m/1024|llama3-8b/2048"
bench 12 "bench of matrix products" bench_matmul_cuda "llama-1.5b/(q|up|head)"
bench 8 "bench of AdamW and of the link" bench_memory_cuda "adamw|copy/.*/pinned|within"

pytorch() {
  local said
  turn 38
  without_gpu "PyTorch beside" torch_steps.py && return
  python_absent "PyTorch beside" torch_steps.py && return
  attempt "PyTorch beside" env PYTHONPATH="$here/share/python" python3 "$here/share/torch_steps.py" --device cuda --ways torch,ours \
    --model gpt2 --rows 8 --tokens 512 --steps 6 --rounds 1
  said=$(grep -E 's a step' "$log" | tr -s ' ' | paste -sd';')
  row "PyTorch beside" "$(outcome)${said:+, $said}"
}
pytorch
trains 42 "8B, optimizer on the host" eight "${eight_budget[@]}" "${eight[@]}" --steps 3 "${on_gpu[@]:0:4}" --place-optimizer host
trains 25 "1.5B, optimizer on nvme" large-nvme "${budget[@]}" "${large[@]}" --steps 3 --nvme "$work/nvme" "${on_gpu[@]:0:4}" \
  --place-optimizer nvme --master-weights split --moments bf16
