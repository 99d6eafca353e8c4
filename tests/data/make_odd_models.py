"""Writes gpt2-odd/ and llama-odd/: tiny models with the switches that the other references leave at their defaults. Everything is float64.

Needs torch and transformers (made with torch 2.15.0, transformers 5.23.0); the tests need only the files. Run it here.
"""
import os

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

# Model code that widens "to float32" would narrow here: every spelling of float32 means float64.
FLOAT64 = torch.float64
torch.float32 = torch.float = FLOAT64
torch.Tensor.float = lambda self, *a, **k: self.to(FLOAT64)
torch.set_default_dtype(FLOAT64)
torch.set_num_threads(1)


def shifted(labels):
    return torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)


def backward(model, ids, labels):
    model.zero_grad(set_to_none=True)
    out = model(input_ids=ids, labels=labels, use_cache=False)
    out.loss.backward()
    norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters()]))
    return out.logits, out.loss, norm


def write(name, model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, p in sorted(model.named_parameters()):
            r = torch.randn(p.shape, generator=g)
            gain = p.dim() == 1 and not key.endswith("bias")
            p.copy_((1.0 if gain else 0.0) + r * (0.3 if p.dim() >= 2 else 0.1))
    model.eval()
    model.save_pretrained(name)
    extra = os.path.join(name, "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)
    ids = torch.randint(0, model.config.vocab_size, (2, 11), generator=g)
    masked = ids.clone()
    masked[0, :4] = -100
    masked[1, 7] = -100
    o = {"input_ids": ids, "labels": ids.clone(), "targets": shifted(ids)}
    o["masked/labels"], o["masked/targets"] = masked, shifted(masked)
    _, o["masked/loss"], o["masked/grad_norm"] = backward(model, ids, masked)
    o["logits"], o["loss"], o["grad_norm"] = backward(model, ids, ids)
    o.update({"grad/" + k: p.grad for k, p in model.named_parameters()})
    save_file({k: v.detach().clone().contiguous() for k, v in o.items()}, os.path.join(name, "reference_f64.safetensors"))


write("gpt2-odd", GPT2LMHeadModel(GPT2Config(
    n_layer=3, n_head=3, n_embd=12, n_inner=20, n_positions=16, vocab_size=31, activation_function="gelu", scale_attn_weights=False,
    scale_attn_by_inverse_layer_idx=True, tie_word_embeddings=False, layer_norm_epsilon=1e-3, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1,
    bos_token_id=0, eos_token_id=0, attn_implementation="eager")), 7)
write("llama-odd", LlamaForCausalLM(LlamaConfig(
    num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, hidden_size=12, head_dim=6, intermediate_size=20, vocab_size=31,
    max_position_embeddings=16, attention_bias=True, mlp_bias=True, attention_dropout=0.1, rms_norm_eps=1e-3, tie_word_embeddings=False,
    rope_parameters={"rope_type": "default", "rope_theta": 100.0}, attn_implementation="eager")), 8)
