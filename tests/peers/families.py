#!/usr/bin/env python3
"""Every family of decoders beside transformers, from random configurations: the losses of ten AdamW steps, the weights after them, and the
logits that transformers computes from our checkpoint, in bf16 and shards too; then low-rank adapters beside PEFT, ours going on there and
PEFT's here.

  python tests/peers/families.py build/release/spillway [seed ...]

Needs torch, transformers, peft, safetensors and numpy. Both sides compute in fp32, in another order: losses agree to 2e-5 of themselves;
weights and logits are at most 1e-4 from PyTorch's in fp64, or in the mean square at most twice as far as PyTorch's own in fp32
(AdamW divides rounding by itself where a gradient is almost zero). transformers computes experts one by one: its grouped products lie further from both sides' fp64. Prints one line a model; exit status 1 if one does not hold.
"""

import contextlib
import copy
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

STEPS, T, ROWS, RATE, VOCABULARY = 10, 24, 2, 1e-3, 128
torch.set_num_threads(2)
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()


def random_config(family, rng):
    heads = rng.choice([2, 4])
    kv = rng.choice([1, 2])
    head_dim = rng.choice([4, 8, 12])
    common = dict(
        vocab_size=VOCABULARY,
        hidden_size=heads * head_dim,
        intermediate_size=rng.choice([20, 36, 52]),
        num_hidden_layers=rng.choice([2, 3]),
        num_attention_heads=heads,
        num_key_value_heads=kv,
        max_position_embeddings=64,
        tie_word_embeddings=rng.random() < 0.5,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=None,
        rms_norm_eps=rng.choice([1e-6, 1e-5]),
        attention_dropout=0.0,
    )
    wide = dict(common, head_dim=rng.choice([4, 8, 16]))
    rope = rng.choice(
        [
            None,
            {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0},
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 10000.0,
            },
        ]
    )
    ropes = {} if rope is None else {"rope_parameters": rope}
    window = rng.choice([None, 5, 13])
    if family == "llama":
        return transformers.LlamaConfig(**common, attention_bias=rng.random() < 0.5, mlp_bias=rng.random() < 0.5, **ropes)
    if family == "mistral":
        return transformers.MistralConfig(**wide, sliding_window=window, **ropes)
    if family == "qwen2":
        return transformers.Qwen2Config(
            **common, use_sliding_window=window is not None, sliding_window=window or 4, max_window_layers=1, **ropes
        )
    if family == "qwen3":
        return transformers.Qwen3Config(
            **wide, use_sliding_window=window is not None, sliding_window=window or 4, max_window_layers=1, attention_bias=rng.random() < 0.5, **ropes
        )
    if family == "qwen3_moe":
        layers = common["num_hidden_layers"]
        return transformers.Qwen3MoeConfig(
            **wide, moe_intermediate_size=rng.choice([12, 20]), num_experts=rng.choice([3, 6]), num_experts_per_tok=rng.choice([1, 2, 3]),
            norm_topk_prob=rng.random() < 0.5, decoder_sparse_step=rng.choice([1, 2]), mlp_only_layers=rng.choice([[], [layers - 1]]),
            use_sliding_window=window is not None, sliding_window=window or 4, attention_bias=rng.random() < 0.5, **ropes
        )
    if family == "mixtral":
        return transformers.MixtralConfig(
            **wide, num_local_experts=rng.choice([3, 6]), num_experts_per_tok=rng.choice([1, 2, 3]), sliding_window=window, **ropes
        )
    if family == "gemma2":
        return transformers.Gemma2Config(
            **wide, sliding_window=window or 7, query_pre_attn_scalar=rng.choice([8, 30]), final_logit_softcapping=rng.choice([None, 5.0]),
            attn_logit_softcapping=rng.choice([None, 3.0])
        )
    if family == "gemma3_text":
        return transformers.Gemma3TextConfig(**wide, sliding_window=window or 7, query_pre_attn_scalar=rng.choice([8, 30]), sliding_window_pattern=2)
    if family == "phi3":
        return transformers.Phi3Config(**dict(common, hidden_size=heads * 8), sliding_window=window, original_max_position_embeddings=64,
                                       partial_rotary_factor=rng.choice([1.0, 0.5]))
    if family == "olmo2":
        return transformers.Olmo2Config(**common, attention_bias=rng.random() < 0.5, **ropes)
    types = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(common["num_hidden_layers"])]
    if family == "olmo3":
        full = ropes.get("rope_parameters", {"rope_type": "default", "rope_theta": 10000.0})
        return transformers.Olmo3Config(**common, sliding_window=window or 6, layer_types=types, attention_bias=rng.random() < 0.5, rope_parameters={
            "full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}})
    if family == "smollm3":
        return transformers.SmolLM3Config(**common, no_rope_layers=[rng.choice([0, 1]) for _ in types], use_sliding_window=window is not None,
                                          sliding_window=window, layer_types=types if window else None, attention_bias=rng.random() < 0.5,
                                          mlp_bias=rng.random() < 0.5, **ropes)
    if family == "ministral3":
        return transformers.Ministral3Config(**wide, sliding_window=window, rope_parameters={
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8, "mscale": 1.0,
            "mscale_all_dim": rng.choice([0.0, 1.0, 0.5]), "llama_4_scaling_beta": rng.choice([0.1, 0.4])})
    if family == "seed_oss":
        return transformers.SeedOssConfig(**wide, attention_bias=rng.random() < 0.5, attention_out_bias=rng.random() < 0.5,
                                          mlp_bias=rng.random() < 0.5, residual_dropout=0.0, **ropes)
    if family == "granite":
        return transformers.GraniteConfig(**common, attention_bias=rng.random() < 0.5, mlp_bias=rng.random() < 0.5, embedding_multiplier=rng.choice([1.0, 6.0]),
                                          residual_multiplier=rng.choice([1.0, 0.22]), attention_multiplier=rng.choice([0.125, 0.3]),
                                          logits_scaling=rng.choice([1.0, 3.0]), **ropes)
    if family == "glm4":
        return transformers.Glm4Config(**dict(common, head_dim=8), attention_bias=rng.random() < 0.5, rope_parameters={
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": rng.choice([0.5, 1.0])})
    if family == "cohere2":
        named = {k: v for k, v in common.items() if k != "rms_norm_eps"}
        return transformers.Cohere2Config(**named, layer_norm_eps=common["rms_norm_eps"], sliding_window=window or 6, layer_types=types,
                                          logit_scale=rng.choice([0.25, 1.0]), attention_bias=rng.random() < 0.5, **ropes)
    if family == "gemma4":
        # The last layer has no window, as transformers wants it.
        types[-1], experts = "full_attention", rng.random() < 0.5
        # Embeddings of each layer and shared keys, as in E2B.
        small = dict(hidden_size_per_layer_input=rng.choice([0, 3]), vocab_size_per_layer_input=VOCABULARY)
        if rng.random() < 0.5:
            small["hidden_size_per_layer_input"] = 3  # without it transformers fails where layers share keys
            types, small["use_double_wide_mlp"], small["num_kv_shared_layers"] = [types[0], "full_attention", types[0]], rng.random() < 0.5, 1
            types.append("full_attention"), wide.update(num_hidden_layers=4)
        more = dict(enable_moe_block=True, num_experts=rng.choice([3, 5]), top_k_experts=2, moe_intermediate_size=12) if experts else {}
        return transformers.Gemma4TextConfig(
            **dict(wide, rms_norm_eps=1e-6), global_head_dim=rng.choice([8, 12]), num_global_key_value_heads=1, attention_k_eq_v=rng.random() < 0.5,
            sliding_window=window or 6, layer_types=types, **small, final_logit_softcapping=rng.choice([None, 5.0]), **more,
            rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
                             "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 10000.0}})
    if family == "granitemoehybrid":
        inner, groups = 2 * common["hidden_size"], rng.choice([1, 2])
        return transformers.GraniteMoeHybridConfig(
            **common, num_local_experts=rng.choice([0, 3, 6]), num_experts_per_tok=2, shared_intermediate_size=rng.choice([20, 36]), layer_types=[rng.choice(["mamba", "attention"]) for _ in types[1:]] + ["attention"],
            attention_bias=rng.random() < 0.5, position_embedding_type=rng.choice([None, "rope"]), embedding_multiplier=rng.choice([1.0, 6.0]),
            residual_multiplier=rng.choice([1.0, 0.22]), attention_multiplier=rng.choice([0.125, 0.3]), logits_scaling=rng.choice([1.0, 3.0]),
            mamba_n_heads=inner // 4, mamba_n_groups=groups, mamba_d_state=rng.choice([3, 8]), mamba_d_conv=rng.choice([2, 4]),
            mamba_conv_bias=rng.random() < 0.5, mamba_proj_bias=rng.random() < 0.5)
    if family == "lfm2":
        named = {k: v for k, v in common.items() if k != "rms_norm_eps"}
        return transformers.Lfm2Config(**named, norm_eps=common["rms_norm_eps"], layer_types=[rng.choice(["conv", "full_attention"]) for _ in types[1:]] + ["full_attention"],
                                       conv_bias=rng.random() < 0.5, conv_L_cache=rng.choice([2, 3]), block_multiple_of=8,
                                       block_auto_adjust_ff_dim=rng.random() < 0.5, **ropes)
    if family == "glm4_moe":
        groups = rng.choice([1, 3])
        return transformers.Glm4MoeConfig(
            **dict(common, head_dim=8), attention_bias=rng.random() < 0.5, use_qk_norm=rng.random() < 0.5, n_routed_experts=6, n_group=groups,
            topk_group=rng.choice([1, groups]), num_experts_per_tok=2, n_shared_experts=rng.choice([1, 2]), moe_intermediate_size=12,
            first_k_dense_replace=rng.choice([0, 1]), routed_scaling_factor=rng.choice([1.0, 2.5]), norm_topk_prob=rng.random() < 0.7,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})
    if family in ("deepseek_v2", "deepseek_v3", "glm4_moe_lite"):
        groups = rng.choice([1, 3])
        kind = {"deepseek_v2": transformers.DeepseekV2Config, "deepseek_v3": transformers.DeepseekV3Config}.get(family, transformers.Glm4MoeLiteConfig)
        more = {}
        if family == "glm4_moe_lite":
            more = dict(mlp_layer_types=[rng.choice(["dense", "sparse"]) for _ in types[1:]] + ["sparse"])
        if family == "deepseek_v2":
            more = dict(topk_method=rng.choice(["greedy", "group_limited_greedy"]), routed_scaling_factor=rng.choice([1.0, 1.7]))
        return kind(
            **dict(common, num_key_value_heads=heads), q_lora_rank=rng.choice([None, 10]), kv_lora_rank=rng.choice([6, 9]),
            qk_rope_head_dim=rng.choice([2, 4]), qk_nope_head_dim=rng.choice([4, 6 if family == "deepseek_v2" else 7]), v_head_dim=rng.choice([3, 6]), n_routed_experts=6,
            n_group=groups, topk_group=rng.choice([1, groups]), num_experts_per_tok=2, n_shared_experts=rng.choice([1, 2]),
            moe_intermediate_size=12, first_k_dense_replace=rng.choice([0, 1]), attention_bias=rng.random() < 0.5, **more, rope_parameters=rng.choice([
                {"rope_type": "default", "rope_theta": 10000.0},
                {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8, "mscale": 1.0,
                 "mscale_all_dim": 1.0}]))
    if family == "gpt_oss":
        rope = ropes.get("rope_parameters") or {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8, "truncate": False}
        return transformers.GptOssConfig(
            **wide, num_local_experts=rng.choice([3, 6]), num_experts_per_tok=rng.choice([1, 2, 3]), sliding_window=window or 6, layer_types=types,
            attention_bias=rng.random() < 0.5, swiglu_limit=rng.choice([0.3, 7.0]), rope_parameters=rope)
    if family == "qwen3_5_text":
        keys = rng.choice([1, 2])
        return transformers.Qwen3_5TextConfig(
            **dict(common, head_dim=8), attention_bias=rng.random() < 0.5, linear_num_key_heads=keys, linear_num_value_heads=keys * rng.choice([1, 2]),
            linear_key_head_dim=rng.choice([4, 7]), linear_value_head_dim=rng.choice([4, 6]), linear_conv_kernel_dim=rng.choice([2, 4]),
            layer_types=[rng.choice(["linear_attention", "full_attention"]) for _ in types[1:]] + ["full_attention"],  # transformers needs one
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": rng.choice([0.25, 0.5, 1.0])})
    if family == "ernie4_5_moe":
        named = {k: v for k, v in common.items() if k != "attention_dropout"}
        return transformers.Ernie4_5_MoeConfig(**named, moe_num_experts=rng.choice([3, 6]), moe_k=2, moe_intermediate_size=12,
            moe_num_shared_experts=rng.choice([0, 1, 2]), moe_layer_start_index=rng.choice([0, 1]), moe_norm_min=rng.choice([1e-12, 0.7]),
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    if family in ("qwen3_5_moe_text", "qwen3_next"):
        keys = rng.choice([1, 2])
        kind, more = transformers.Qwen3_5MoeTextConfig, {}
        if family == "qwen3_next":
            kind = transformers.Qwen3NextConfig
            more = dict(norm_topk_prob=rng.random() < 0.5, mlp_only_layers=rng.choice([[], [0]]))
        return kind(
            **dict(common, head_dim=8), attention_bias=rng.random() < 0.5, linear_num_key_heads=keys, linear_num_value_heads=keys * rng.choice([1, 2]),
            linear_key_head_dim=rng.choice([4, 7]), linear_value_head_dim=rng.choice([4, 6]), linear_conv_kernel_dim=rng.choice([2, 4]),
            num_experts=rng.choice([3, 6]), num_experts_per_tok=rng.choice([1, 2, 3]), moe_intermediate_size=rng.choice([12, 20]),
            shared_expert_intermediate_size=rng.choice([12, 20]),
            layer_types=[rng.choice(["linear_attention", "full_attention"]) for _ in types[1:]] + ["full_attention"],
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": rng.choice([0.25, 0.5, 1.0])}, **more)
    if family == "longrope":
        original = rng.choice([16, 40])  # a row of 24 is longer than one and not than the other
        return transformers.Phi3Config(**dict(common, hidden_size=heads * 8), sliding_window=window, original_max_position_embeddings=original, rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "short_factor": [1.0, 1.3],
            "long_factor": [2.0, 5.0], "original_max_position_embeddings": original})
    raise ValueError(family)


FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "gemma2", "gemma3_text", "phi3", "olmo2",
            "olmo3", "smollm3", "ministral3", "seed_oss", "granite", "glm4", "cohere2", "longrope", "gemma4",
            "granitemoehybrid", "lfm2", "glm4_moe", "deepseek_v3", "gpt_oss",
            "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "deepseek_v2", "glm4_moe_lite", "ernie4_5_moe"]


@contextlib.contextmanager
def everything_float64():
    """Code of models that widens to fp32 widens to fp64 here."""
    old = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = lambda self: self.to(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = old


def losses_of(model, windows, trained):
    biases = {id(p) for name, p in model.named_parameters() if name.endswith("bias")}  # of stacked experts too, which have two axes
    decay = [p for p in trained if p.dim() >= 2 and id(p) not in biases]
    others = [p for p in trained if p.dim() < 2 or id(p) in biases]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=RATE, betas=(0.9, 0.95), eps=1e-8
    )
    losses = []
    for step in range(STEPS):
        rows = torch.stack([windows[(step * ROWS + r) % len(windows)] for r in range(ROWS)])
        logits = model(input_ids=rows[:, :-1]).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def ours(program, folder, where, more=()):
    flags = [
        "--data", where / "tokens.bin", "--data-order", "sequential", "--steps", STEPS, "--sequence-length", T, "--micro-batch-size", ROWS,
        "--learning-rate", RATE, "--lr-schedule", "constant", "--warmup-steps", 0, "--precision", "fp32", "--quiet",
    ]
    command = [program, "train", "--model", folder, *flags, *more]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=where)
    if done.returncode:
        raise SystemExit(done.stderr)
    run = where / more[list(more).index("--out") + 1]
    return [json.loads(line)["loss"] for line in open(run / "metrics.jsonl")], run / f"checkpoints/step-{STEPS:08}"


def beyond(ours, own):
    """The largest distance, or 0 if both runs are equally far from fp64."""
    return 0.0 if ours.square().mean() <= 4 * own.square().mean() and ours.abs().max() > 1e-4 else ours.abs().max().item()


def worst(a, b):
    return max(abs(x - y) / max(abs(x), 1e-3) for x, y in zip(a, b))


def randomize(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if model.config.model_type == "gemma4_text" and "q_norm" in name:
                p.mul_(0.3)  # its scores are not divided by the root of the head's width, and a hard softmax would make rounding grow
            if p.dim() < 2 or name.endswith("bias"):
                p.add_(0.2 * torch.randn_like(p))
            else:
                p.mul_(3)


def check(program, family, seed):
    rng = random.Random(f"{family} {seed}")
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        tokens = np.array([rng.randrange(VOCABULARY) for _ in range(T * 40 + 1)], dtype=np.uint16)
        tokens.tofile(where / "tokens.bin")
        windows = [torch.tensor(tokens[w * T : w * T + T + 1].astype(np.int64)) for w in range(40)]
        config = random_config(family, rng)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager")
        randomize(model)
        model.save_pretrained(where / "hf", max_shard_size="20KB" if rng.random() < 0.5 else "5GB")
        got, checkpoint = ours(program, where / "hf", where, ["--out", "full"])
        exact = copy.deepcopy(model).double()
        want = losses_of(model, windows, list(model.parameters()))
        with everything_float64():
            losses_of(exact, windows, list(exact.parameters()))
            exact_logits = exact(input_ids=windows[0][None]).logits
        subprocess.run([program, "export", where / "full", "--out", where / "out"], check=True, capture_output=True)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(where / "out", attn_implementation="eager")
        with torch.no_grad():
            logits, own_logits = (m(input_ids=windows[0][None]).logits - exact_logits for m in (loaded, model))
        weights, own_weights = (torch.cat([(p - dict(m.named_parameters())[n]).detach().flatten() for n, p in exact.named_parameters()])
                                for m in (loaded, model))

        # In bf16 and in shards: the logits of the same weights as transformers itself rounds and saves them.
        subprocess.run([program, "export", where / "full", "--out", where / "bf16", "--dtype", "bf16", "--max-shard-size", "4KB"],
                       check=True, capture_output=True)
        loaded.to(torch.bfloat16).save_pretrained(where / "bf16-theirs")
        halves = [transformers.AutoModelForCausalLM.from_pretrained(where / name, attn_implementation="eager",
                                                                    experts_implementation="eager", dtype=torch.bfloat16)
                  for name in ("bf16", "bf16-theirs")]
        with torch.no_grad():
            of_halves = [half(input_ids=windows[0][None]).logits for half in halves]
        shards = len(list((where / "bf16").glob("model-*.safetensors")))
        rounded = (of_halves[0] - of_halves[1]).abs().max().item() if shards > 1 else float("nan")

        # Adapters: ours going on in PEFT, and PEFT's here.
        base = lambda: transformers.AutoModelForCausalLM.from_pretrained(where / "hf", attn_implementation="eager")
        stabilized = rng.random() < 0.5
        # PEFT turns the names of MLPs into those of fused experts, which have no adapters here, and loses those of plain MLPs beside them.
        of_attention = ["q_proj", "k_proj", "v_proj", "o_proj"] if getattr(config, "num_local_experts", None) else None
        if config.model_type in ("deepseek_v2", "deepseek_v3", "glm4_moe_lite"):
            of_attention = ["kv_b_proj", "o_proj"]  # which every model has, with q_lora_rank or without
        if config.model_type in ("qwen3_next", "ernie4_5_moe"):  # PEFT changes the rank of adapters for experts that it fuses
            of_attention = ["q_proj", "k_proj", "v_proj", "o_proj"]
        if config.model_type == "gemma4_text":
            of_attention = ["q_proj", "o_proj"]  # which every layer has; and PEFT would adapt the projection of all layers' embeddings
        targets = of_attention or "all-linear"
        lora = ["--lora-targets", ",".join(of_attention or [targets]), "--lora", 3, "--lora-alpha", 5, "--lora-rank-scaling", "rank-stabilized" if stabilized else "plain", "--out", "tuned"]
        first, adapter = ours(program, where / "hf", where, lora)
        subprocess.run([program, "export", where / "tuned", "--out", where / "peft"], check=True, capture_output=True)
        there = PeftModel.from_pretrained(base(), where / "peft", is_trainable=True)
        on = losses_of(there, windows, [p for p in there.parameters() if p.requires_grad])
        here, _ = ours(program, where / "hf", where, ["--adapter", where / "peft", "--out", "on"])
        made = get_peft_model(base(), LoraConfig(r=2, lora_alpha=8, target_modules=targets, init_lora_weights=False, use_rslora=stabilized,
                                                 task_type="CAUSAL_LM"))
        with torch.no_grad():
            for name, p in made.named_parameters():
                if "lora_B" in name:
                    p.mul_(0.1)  # as drawn they would move the model far enough to make rounding grow
        made.save_pretrained(where / "theirs")
        theirs = losses_of(made, windows, [p for p in made.parameters() if p.requires_grad])
        taken, _ = ours(program, where / "hf", where, ["--adapter", where / "theirs", "--out", "taken"])
    differs = {"losses": worst(want, got), "weights": beyond(weights, own_weights), "logits": beyond(logits, own_logits), "logits of bf16": rounded, "ours in PEFT": worst(on, here), "PEFT's here": worst(theirs, taken)}
    bounds = {"losses": 2e-5, "weights": 1e-4, "logits": 1e-4, "logits of bf16": 0, "ours in PEFT": 2e-5, "PEFT's here": 2e-5}
    bad = [name for name, value in differs.items() if not value <= bounds[name]]
    moved = abs(first[-1] - first[0]) > 1e-6 and abs(want[-1] - want[0]) > 1e-6
    print(f"{family} {seed}: " + ", ".join(f"{name} {value:.1e}" for name, value in differs.items()) + ("" if moved else ", NOTHING LEARNT")
          + (f"  FAILED: {', '.join(bad)}" if bad else ""), flush=True)
    return not bad and moved


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    seeds = [int(word) for word in sys.argv[2:]] or [1, 2]
    results = [check(program, family, seed) for family in FAMILIES for seed in seeds]
    print(f"{sum(results)} of {len(results)} hold")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
