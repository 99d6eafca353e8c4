# Sourced by gpu_check.sh's trainings.sh and peers.sh: what they train, and on what.

# Words in no order: the loss falls fast, but not to nothing.
awk 'BEGIN {n = split("and the river runs over stones under light of a long day", words, " "); state = 12345
            for (i = 0; i < 400000; ++i) {
              state = (state * 69069 + 1) % 4294967296
              printf "%s ", words[int(state / 65536) % n + 1]
            }}' >"$out/runs/text.txt"
train=("$here/bin/spillway" train --tokenizer bytes --data "$out/runs/text.txt" --seed 5 --no-final-checkpoint --device cuda)
# config NAME WIDTH LAYERS HEADS KV_HEADS MLP VOCABULARY: a folder of a Llama of that shape.
config() {
  mkdir -p "$out/runs/$1"
  cat >"$out/runs/$1/config.json" <<JSON
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": $2, "head_dim": $(($2 / $4)),
 "intermediate_size": $6, "num_hidden_layers": $3, "num_attention_heads": $4, "num_key_value_heads": $5, "vocab_size": $7,
 "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false, "attention_bias": false,
 "mlp_bias": false, "bos_token_id": 1, "eos_token_id": 2}
JSON
}
config llama-1.5b 2048 28 16 8 6144 32000
config llama-1.5b-blocks 2048 2 16 8 6144 32000  # two of its blocks: ncu keeps a copy of all memory that a kernel may write to
config llama-least 32 1 1 1 32 256

if [ -n "$tiny" ]; then
  least=(--model "$out/runs/llama-least" --from-scratch --sequence-length 16 --micro-batch-size 2 --learning-rate 3e-2 --warmup-steps 1)
  shortest=("${least[@]}" --steps 4) small=("${least[@]}" --steps 4) gpt2=("${least[@]}") large=("${least[@]}")
  blocks=("${least[@]}") steps=4 eight=1 four=1 narrow=64MiB looked=64MiB
else
  shortest=(--model gpt2-tiny --sequence-length 128 --micro-batch-size 8 --steps 60 --learning-rate 2e-3)
  small=(--model gpt2-124m --sequence-length 512 --micro-batch-size 4 --gradient-accumulation-steps 2 --steps 12 --learning-rate 1e-3
         --warmup-steps 2)
  gpt2=(--model gpt2-124m --sequence-length 1024 --micro-batch-size 16 --learning-rate 1e-3 --warmup-steps 2)
  large=(--model "$out/runs/llama-1.5b" --from-scratch --sequence-length 2048 --micro-batch-size 4 --warmup-steps 2 --learning-rate 3e-4)
  blocks=("${large[@]/%\/llama-1.5b/\/llama-1.5b-blocks}") steps=7 eight=8 four=4 narrow=10GiB looked=10GiB
fi
on_gpu=(--place-parameters device --place-gradients device --place-optimizer device)
on_host=(--place-parameters host --place-gradients host --place-optimizer host)
