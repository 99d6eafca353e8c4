# Sourced by trainings.sh: what is trained, and on what.

# Words in no order: the loss falls fast, but not to nothing.
awk 'BEGIN {n = split("and the river runs over stones under light of a long day", words, " "); state = 12345
            for (i = 0; i < 400000; ++i) {
              state = (state * 69069 + 1) % 4294967296
              printf "%s ", words[int(state / 65536) % n + 1]
            }}' >"$runs/text.txt"
# Budgets are given to each, so that nothing depends on what else is in memory.
train=("$here/bin/spillway" train --tokenizer bytes --data "$runs/text.txt" --seed 5 --device cuda --resume never)
# config NAME WIDTH LAYERS HEADS KV_HEADS MLP VOCABULARY [EXPERTS]: a folder of a Llama of that shape, or of a mixture of so many experts.
config() {
  local kind='"architectures": ["LlamaForCausalLM"], "model_type": "llama", "mlp_bias": false'
  [ -z "${8-}" ] || kind='"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": '$8', "num_experts_per_tok": 4,
 "moe_intermediate_size": '$(($6 / 2))', "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.001'
  mkdir -p "$runs/models/$1"
  cat >"$runs/models/$1/config.json" <<JSON
{$kind, "hidden_act": "silu", "hidden_size": $2, "head_dim": $(($2 / $4)),
 "intermediate_size": $6, "num_hidden_layers": $3, "num_attention_heads": $4, "num_key_value_heads": $5, "vocab_size": $7,
 "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false, "attention_bias": false,
 "bos_token_id": 1, "eos_token_id": 2}
JSON
}

if [ -n "$tiny" ]; then
  config least 32 1 1 1 32 256
  config experts 32 1 1 1 32 256 8
  least=(--model "$runs/models/least" --from-scratch --sequence-length 16 --micro-batch-size 2 --learning-rate 3e-2 --warmup-steps 1)
  shortest=("${least[@]}" --steps 4) gpt2=("${least[@]}") large=("${least[@]}") blocks=("${least[@]}") eight=("${least[@]}") base=("${least[@]}")
  mixture=("${least[@]/%\/least/\/experts}")
  lora=(--sequence-length 16 --micro-batch-size 2 --learning-rate 3e-2 --warmup-steps 1)
  budget=(--device-memory 64MiB --host-memory 128MiB) eight_budget=("${budget[@]}") narrow=64MiB steps=4
else
  config large 2048 28 16 8 6144 32000
  config blocks 2048 2 16 8 6144 32000  # two of its blocks: ncu keeps a copy of all memory that a kernel may write to
  config experts 1024 8 8 4 1024 32000 32
  config base 1024 8 8 4 3072 32000
  shortest=(--model gpt2-tiny --sequence-length 128 --micro-batch-size 8 --steps 60 --learning-rate 2e-3)
  gpt2=(--model gpt2-124m --sequence-length 1024 --micro-batch-size 16 --learning-rate 1e-3 --warmup-steps 2)
  blocks=(--model "$runs/models/blocks" --from-scratch --sequence-length 2048 --micro-batch-size 4 --learning-rate 3e-4 --warmup-steps 2)
  large=("${blocks[@]/%\/blocks/\/large}" --gradient-accumulation-steps 4)
  eight=(--model llama3-8b --sequence-length 2048 --micro-batch-size 4 --gradient-accumulation-steps 2 --learning-rate 1e-4
         --warmup-steps 1)
  mixture=(--model "$runs/models/experts" --from-scratch --sequence-length 2048 --micro-batch-size 4 --learning-rate 3e-4 --warmup-steps 2)
  base=(--model "$runs/models/base" --from-scratch --sequence-length 1024 --micro-batch-size 4 --learning-rate 1e-3 --warmup-steps 2)
  lora=(--sequence-length 1024 --micro-batch-size 4 --learning-rate 1e-3 --warmup-steps 2)
  budget=(--device-memory 60GiB --host-memory 40GiB) eight_budget=(--device-memory 100GiB --host-memory 100GiB) narrow=10GiB steps=5
fi
on_gpu=(--place-parameters device --place-gradients device --place-optimizer device)
on_host=(--place-parameters host --place-gradients host --place-optimizer host)
