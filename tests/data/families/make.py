"""Writes a tiny model of each family of decoders with its numbers: logits, loss, gradients and ten AdamW steps in float64.

Needs torch, transformers and safetensors (made with torch 2.9.1, transformers 5.24.0); the tests need only the files. Run it here:

  python make.py [NAME ...]
"""
import json
import os
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

# Model code that widens "to float32" would narrow here: every spelling of float32 means float64.
FLOAT64 = torch.float64
torch.float32 = torch.float = FLOAT64
torch.Tensor.float = lambda self, *a, **k: self.to(FLOAT64)
torch.set_default_dtype(FLOAT64)
torch.set_num_threads(1)

SIZES = dict(vocab_size=31, hidden_size=16, intermediate_size=20, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=None, attention_dropout=0.0)
STEPS, T, LAYERS_OF_SMALL = 10, 23, 5
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]


def rope(theta, **kw):
    return {"rope_type": "default", "rope_theta": theta, **kw}


def yarn(theta, original, **kw):
    return {"rope_type": "yarn", "rope_theta": theta, "factor": 4.0, "original_max_position_embeddings": original, **kw}


def longrope(original):
    return {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.5], "long_factor": [2.0, 5.5],
            "original_max_position_embeddings": original, "partial_rotary_factor": 0.5}


# NAME: the configuration. Numbers that a model of random weights would leave at 1 or 0 are set to others.
CONFIGS = {
    "cohere2": lambda: transformers.Cohere2Config(**{**SIZES, "tie_word_embeddings": True}, sliding_window=6, layer_types=TYPES,
                                                  logit_scale=0.3, layer_norm_eps=1e-3, rope_parameters=rope(10000.0)),
    "deepseek-v2": lambda: transformers.DeepseekV2Config(
        **{**SIZES, "num_key_value_heads": 4, "num_hidden_layers": 2}, q_lora_rank=10, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=6,
        v_head_dim=5, moe_intermediate_size=12, n_routed_experts=6, num_experts_per_tok=2, topk_method="group_limited_greedy", n_group=3,
        topk_group=2, n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=1.5, norm_topk_prob=True,
        rope_parameters=yarn(10000.0, 8, mscale=1.0, mscale_all_dim=0.7, beta_fast=2.0, beta_slow=1.0)),
    "glm4-moe-lite": lambda: transformers.Glm4MoeLiteConfig(
        **{**SIZES, "num_key_value_heads": 4, "num_hidden_layers": 2}, q_lora_rank=10, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=6,
        v_head_dim=7, moe_intermediate_size=12, n_routed_experts=4, num_experts_per_tok=2, mlp_layer_types=["sparse", "dense"],
        rope_parameters=rope(10000.0)),
    "deepseek-v3": lambda: transformers.DeepseekV3Config(
        **{**SIZES, "num_key_value_heads": 4}, q_lora_rank=10, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5,
        moe_intermediate_size=12, n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=2, first_k_dense_replace=1,
        rope_parameters=yarn(10000.0, 8, mscale=1.0, mscale_all_dim=0.7, beta_fast=2.0, beta_slow=1.0)),
    "deepseek-v3-plain": lambda: transformers.DeepseekV3Config(
        **{**SIZES, "num_key_value_heads": 4, "num_hidden_layers": 2}, q_lora_rank=None, kv_lora_rank=8, qk_rope_head_dim=2, qk_nope_head_dim=4,
        v_head_dim=6, moe_intermediate_size=12, n_routed_experts=4, num_experts_per_tok=3, n_group=1, topk_group=1, first_k_dense_replace=0,
        norm_topk_prob=False, attention_bias=True, rope_parameters=rope(10000.0)),
    "ernie4_5-moe": lambda: transformers.Ernie4_5_MoeConfig(
        **{k: v for k, v in SIZES.items() if k != "attention_dropout"} | {"tie_word_embeddings": False}, moe_num_experts=4, moe_k=2,
        moe_intermediate_size=12, moe_num_shared_experts=1, moe_layer_start_index=1, moe_norm_min=0.7, rope_parameters=rope(10000.0)),
    "gemma4": lambda: transformers.Gemma4TextConfig(
        **{**SIZES, "num_hidden_layers": 4}, head_dim=4, global_head_dim=8, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=6,
        hidden_size_per_layer_input=0, layer_types=TYPES + ["full_attention"], final_logit_softcapping=3.0, rope_parameters={
            "sliding_attention": rope(1000.0),
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 10000.0}}),
    "gemma4-experts": lambda: transformers.Gemma4TextConfig(
        **{**SIZES, "num_hidden_layers": 2}, head_dim=4, global_head_dim=8, sliding_window=6, hidden_size_per_layer_input=0,
        layer_types=TYPES[:2], enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=12, rope_parameters={
            "sliding_attention": rope(1000.0), "full_attention": rope(10000.0)}),
    "gemma4-small": lambda: transformers.Gemma4TextConfig(
        **{**SIZES, "num_hidden_layers": 5}, head_dim=4, global_head_dim=6, sliding_window=6, hidden_size_per_layer_input=3,
        vocab_size_per_layer_input=31, num_kv_shared_layers=2, use_double_wide_mlp=True, layer_types=[*TYPES, "sliding_attention", "full_attention"],
        rope_parameters={"sliding_attention": rope(1000.0), "full_attention": rope(10000.0)}),
    "gemma4-plain": lambda: transformers.Gemma4TextConfig(
        **SIZES, head_dim=4, global_head_dim=6, sliding_window=6, hidden_size_per_layer_input=0, layer_types=[*TYPES[:2], "full_attention"],
        rope_parameters={"sliding_attention": rope(1000.0), "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                                                               "rope_theta": 10000.0, "factor": 2.0}}),
    "glm4": lambda: transformers.Glm4Config(**SIZES, head_dim=8, attention_bias=True, rope_parameters=rope(10000.0, partial_rotary_factor=0.5)),
    "glm4-moe": lambda: transformers.Glm4MoeConfig(
        **SIZES, head_dim=8, moe_intermediate_size=12, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, n_group=3, topk_group=2,
        first_k_dense_replace=1, routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True,
        rope_parameters=rope(10000.0, partial_rotary_factor=0.5)),
    "gpt-oss": lambda: transformers.GptOssConfig(**SIZES, head_dim=6, num_local_experts=5, num_experts_per_tok=2, sliding_window=6, swiglu_limit=0.5,
                                                 rope_parameters=yarn(100.0, 32, truncate=False, beta_fast=2.0, beta_slow=1.0)),
    "gpt-oss-mxfp4": lambda: transformers.GptOssConfig(
        **{**SIZES, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}, head_dim=6, num_local_experts=3, num_experts_per_tok=2,
        sliding_window=6, rope_parameters=rope(10000.0)),
    "granite": lambda: transformers.GraniteConfig(**SIZES, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.3,
                                                  logits_scaling=1.7, attention_bias=True, mlp_bias=True, rope_parameters=rope(10000.0)),
    "granitemoehybrid": lambda: transformers.GraniteMoeHybridConfig(
        **SIZES, num_local_experts=0, shared_intermediate_size=12, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.3,
        logits_scaling=1.7, layer_types=["mamba", "attention", "mamba"], mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=5, mamba_d_conv=4,
        mamba_proj_bias=True, time_step_limit=(0.3, 3.0)),
    "granitemoehybrid-experts": lambda: transformers.GraniteMoeHybridConfig(
        **SIZES, num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=12, residual_multiplier=0.4,
        layer_types=["mamba", "attention", "mamba"], mamba_n_heads=4, mamba_n_groups=1, mamba_d_state=5, mamba_d_conv=4),
    "granitemoehybrid-rope": lambda: transformers.GraniteMoeHybridConfig(
        **SIZES, num_local_experts=0, shared_intermediate_size=12, position_embedding_type="rope", layer_types=["attention"] * 3,
        attention_bias=True, mamba_n_heads=4, rope_parameters=rope(10000.0)),
    "lfm2": lambda: transformers.Lfm2Config(**{**SIZES, "tie_word_embeddings": True}, conv_bias=True, conv_L_cache=3, block_multiple_of=8,
                                            block_ffn_dim_multiplier=1.4, layer_types=["conv", "full_attention", "conv"],
                                            rope_parameters=rope(10000.0)),
    "ministral3": lambda: transformers.Ministral3Config(**SIZES, head_dim=6, rope_parameters=yarn(
        10000.0, 8, mscale=1.0, mscale_all_dim=0.6, llama_4_scaling_beta=0.3, beta_fast=2.0, beta_slow=1.0)),
    "olmo3": lambda: transformers.Olmo3Config(**SIZES, sliding_window=6, layer_types=TYPES, rope_parameters={
        "full_attention": yarn(10000.0, 8, beta_fast=2.0, beta_slow=1.0), "sliding_attention": rope(10000.0)}),
    "phi3-longrope": lambda: transformers.Phi3Config(**{**SIZES, "hidden_size": 32, "num_hidden_layers": 2}, original_max_position_embeddings=16, resid_pdrop=0.0,
                                                     embd_pdrop=0.0, sliding_window=None, rope_parameters=longrope(16)),
    "phi3-shortrope": lambda: transformers.Phi3Config(**{**SIZES, "hidden_size": 32, "num_hidden_layers": 2}, original_max_position_embeddings=32, resid_pdrop=0.0,
                                                      embd_pdrop=0.0, sliding_window=7, tie_word_embeddings=True, rope_parameters=longrope(32)),
    "qwen3_5": lambda: transformers.Qwen3_5TextConfig(
        **SIZES, head_dim=8, layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5, linear_conv_kernel_dim=4,
        rope_parameters=rope(10000.0, partial_rotary_factor=0.5)),
    "qwen3_5-moe": lambda: transformers.Qwen3_5MoeTextConfig(
        **SIZES, head_dim=8, layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
        linear_num_value_heads=2, linear_key_head_dim=4, linear_value_head_dim=6, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=12, shared_expert_intermediate_size=10, rope_parameters=rope(10000.0, partial_rotary_factor=0.5)),
    "qwen3-next": lambda: transformers.Qwen3NextConfig(
        **SIZES, head_dim=8, layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5, num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=12, shared_expert_intermediate_size=10, mlp_only_layers=[1], norm_topk_prob=False,
        rope_parameters=rope(10000.0, partial_rotary_factor=0.5)),
    "seed-oss": lambda: transformers.SeedOssConfig(**SIZES, head_dim=6, attention_bias=True, attention_out_bias=True, mlp_bias=True,
                                                   residual_dropout=0.0, rope_parameters=rope(10000.0)),
    "smollm3": lambda: transformers.SmolLM3Config(**SIZES, no_rope_layers=[1, 0, 1], use_sliding_window=True, sliding_window=6,
                                                  layer_types=["full_attention", "sliding_attention", "full_attention"],
                                                  rope_parameters=rope(10000.0)),
}


# The language model of a model that also has an image encoder.
TEXT = dict(SIZES, head_dim=6)
IMAGES = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
CONFIGS |= {
    "whole-gemma3": lambda: transformers.Gemma3Config(
        text_config=transformers.Gemma3TextConfig(**TEXT, sliding_window=6, query_pre_attn_scalar=7, layer_types=TYPES, rope_parameters={
            "full_attention": rope(10000.0), "sliding_attention": rope(1000.0)}), mm_tokens_per_image=1,
        vision_config=transformers.SiglipVisionConfig(**IMAGES), image_token_index=30, boi_token_index=29, eoi_token_index=28),
    "whole-mistral3": lambda: transformers.Mistral3Config(
        text_config=transformers.MistralConfig(**TEXT, sliding_window=None, rope_parameters=rope(10000.0)), tie_word_embeddings=False,
        vision_config=transformers.PixtralVisionConfig(**IMAGES), image_token_index=30, spatial_merge_size=1),
}


def shifted(labels):
    return torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)


def backward(model, ids, labels):
    model.zero_grad(set_to_none=True)
    out = model(input_ids=ids, labels=labels, use_cache=False)
    out.loss.backward()
    norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for _, p in text_of(model)]))
    return out.logits, out.loss, norm


def named(model, prefix, value):
    """The parameters' values under the names that the folder has for them."""
    return {prefix + k: v for k, v in single_experts({k.replace("model.language_model.", "model.").replace("moe.router.weight", "moe.router.layer.weight"): value(p) for k, p in text_of(model)})}


def single_experts(tensors):
    """Stacked experts as one tensor each."""
    for k, v in tensors.items():
        base, _, last = k.rpartition(".")
        if k.endswith(("embed_tokens_per_layer.weight", "per_layer_model_projection.weight")):  # those of all layers of Gemma 4
            table = "embed" in last or "embed" in base
            prefix, name = base.rpartition(".")[0], "per_layer_embedding" if table else "per_layer_model_projection"
            for i, part in enumerate(v.chunk(LAYERS_OF_SMALL, 1 if table else 0)):
                yield f"{prefix}.layers.{i}.{name}.weight", part
            continue
        if base.endswith("experts") and base.replace("experts", "router.bias") in tensors:
            yield from interleaved_experts(base, last, v)
            continue
        if base.endswith("experts") and last == "gate_up_proj":
            for e, w in enumerate(v):
                gate, up = w.chunk(2)
                yield from ((f"{base}.{e}.gate_proj.weight", gate), (f"{base}.{e}.up_proj.weight", up))
        elif base.endswith("experts") and last == "down_proj":
            yield from ((f"{base}.{e}.down_proj.weight", w) for e, w in enumerate(v))
        else:
            yield k, v


def interleaved_experts(base, last, stack):
    """gpt-oss: experts stacked [in, out], with gate and up in turn."""
    kind = "bias" if last.endswith("_bias") else "weight"
    for e, w in enumerate(stack):
        w = w if kind == "bias" else w.T
        if last.startswith("gate_up"):
            yield from ((f"{base}.{e}.gate_proj.{kind}", w[::2]), (f"{base}.{e}.up_proj.{kind}", w[1::2]))
        else:
            yield f"{base}.{e}.down_proj.{kind}", w


def text_of(model):
    """The parameters of the language model, by name."""
    return [(k, p) for k, p in model.named_parameters() if "vision" not in k and "projector" not in k and p.requires_grad]


def steps(model, batches):
    """The losses and gradient norms of ten AdamW steps, and the weights after them. eps is not 1e-8: where a gradient is almost zero, AdamW
    would divide rounding by it."""
    trained = [p for _, p in text_of(model)]
    decays = lambda key, p: p.dim() >= 2 and not key.endswith("bias")
    decay, others = [p for k, p in text_of(model) if decays(k, p)], [p for k, p in text_of(model) if not decays(k, p)]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-3,
                                  betas=(0.9, 0.95), eps=1e-6, foreach=False)
    losses, norms = [], []
    for ids in batches:
        _, loss, _ = backward(model, ids, ids)
        norms.append(torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=False))
        optimizer.step()
        losses.append(loss.detach())
    return {"train/loss": torch.stack(losses), "train/grad_norm": torch.stack(norms), **named(model, "train/final/", lambda p: p)}


def mxfp4_of(values):
    """Blocks and scales of values [E, rows, columns], each block of 32 columns rounded as OCP Microscaling Formats 1.0 says."""
    x = values.reshape(*values.shape[:-1], -1, 32)
    power = x.abs().amax(-1).log2().floor() - 2
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    # argmin takes the first of two equally near magnitudes; ties do not occur in random values
    codes = (x.abs() / 2 ** power[..., None]).clamp(max=6)[..., None].sub(magnitudes).abs().argmin(-1) + 8 * (x < 0)
    return (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8), (power + 127).to(torch.uint8)


def round_experts(model):
    """Rounds the experts' weights to MXFP4 and returns their blocks and scales by name; transformers computes the values of these."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    stored = {}
    for key, p in model.named_parameters():
        if key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            blocks, scales = mxfp4_of(p.detach().transpose(1, 2))
            p.data.copy_(convert_moe_packed_tensors(blocks, scales, dtype=FLOAT64))
            stored[key] = (blocks, scales)
    return stored


def store_mxfp4(name, stored):
    """Replaces the experts' weights in the folder by their blocks and scales, as openai/gpt-oss-20b has them."""
    file = os.path.join(name, "model.safetensors")
    tensors = load_file(file)
    for key, (blocks, scales) in stored.items():
        del tensors[key]
        tensors[key + "_blocks"], tensors[key + "_scales"] = blocks, scales
    save_file(tensors, file, metadata={"format": "pt"})
    path = os.path.join(name, "config.json")
    with open(path) as f:
        config = json.load(f)
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    with open(path, "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)


def write(name, config, seed):
    config._attn_implementation = "eager"
    kind = transformers.AutoModelForImageTextToText if hasattr(config, "vision_config") else transformers.AutoModelForCausalLM
    model = kind.from_config(config, attn_implementation="eager", experts_implementation="eager")
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, p in sorted(model.named_parameters()):
            r = torch.randn(p.shape, generator=g)
            # The norms of Qwen3.5 add 1 to their weights, except that of linear attention.
            centred = config.model_type.startswith(("qwen3_5", "qwen3_next")) and key.endswith("norm.weight") and "linear_attn" not in key
            gain = p.dim() == 1 and not key.endswith("bias") and not centred
            p.copy_((1.0 if gain else 0.0) + r * (0.3 if p.dim() >= 2 else 0.1))
        for key, b in sorted(model.named_buffers()):
            if key.endswith("layer_scalar"):
                b.copy_(1 + 0.3 * torch.randn(b.shape, generator=g))
            if key.endswith("e_score_correction_bias"):  # a buffer, or in Ernie a parameter
                b.copy_(0.3 * torch.randn(b.shape, generator=g))
    model.eval()
    stored = round_experts(model) if name.endswith("mxfp4") else {}
    shutil.rmtree(name, ignore_errors=True)
    model.save_pretrained(name)
    if stored:
        store_mxfp4(name, stored)
    extra = os.path.join(name, "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)
    vocabulary = config.get_text_config().vocab_size
    ids = torch.randint(0, vocabulary, (2, T), generator=g)
    masked = ids.clone()
    masked[0, :4] = -100
    masked[1, 7] = -100
    batches = torch.randint(0, vocabulary, (STEPS, 2, T), generator=g)
    o = {"input_ids": ids, "labels": ids.clone(), "targets": shifted(ids), "train/input_ids": batches}
    o["masked/labels"], o["masked/targets"] = masked, shifted(masked)
    _, o["masked/loss"], o["masked/grad_norm"] = backward(model, ids, masked)
    o["logits"], o["loss"], o["grad_norm"] = backward(model, ids, ids)
    o.update(named(model, "grad/", lambda p: p.grad.clone()))
    o.update(steps(model, batches))
    save_file({k: v.detach().clone().contiguous() for k, v in o.items()}, os.path.join(name, "reference_f64.safetensors"))
    print(f"{name}: loss {o['loss']:.6f}, {o['train/loss'][0]:.4f} to {o['train/loss'][-1]:.4f}")


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    for number, (name, config) in enumerate(sorted(CONFIGS.items())):
        if name in sys.argv[1:] or len(sys.argv) == 1:
            write(name, config(), 100 + sum(map(ord, name)))
