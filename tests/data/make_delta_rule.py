#!/usr/bin/env python3
"""References of the gated delta rule: transformers' function of Qwen3-Next, in fp64. Written beside the others:

    python tests/data/make_delta_rule.py

with PyTorch, transformers and safetensors; tests/data/ops/delta_rule.safetensors. transformers computes the rule in fp32 whatever its inputs
are; here Tensor.to(float32) is to(float64) while it runs. The inputs are rounded to f32 first, so that they are the same in every dtype.
"""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

HERE = pathlib.Path(__file__).parent / "ops"

CASES = {  # name: B, T, J, H, K, V, normalize
    "one": (2, 1, 2, 4, 3, 5, True),
    "shared": (1, 70, 2, 4, 4, 3, True),
    "plain": (1, 66, 1, 3, 5, 4, False),
}


def drawn(*shape):
    return torch.randn(shape, dtype=torch.float32).double()


def main():
    torch.manual_seed(47)
    to = torch.Tensor.to
    torch.Tensor.to = lambda self, *a, **k: to(self, *[torch.float64 if i is torch.float32 else i for i in a], **k)
    tensors = {}
    for name, (B, T, J, H, K, V, normalize) in CASES.items():
        qkv = drawn(B, T, 2 * J * K + H * V)
        if not normalize:
            qkv *= 0.4  # without the norm the rule is stable only for short keys
        inputs = {"qkv": qkv, "a": drawn(B, T, H), "b": drawn(B, T, H), "a_log": drawn(H) * 0.5 - 1, "dt_bias": drawn(H)}
        inputs = {key: to(to(value, torch.float32), torch.float64).requires_grad_() for key, value in inputs.items()}
        q, k, v = inputs["qkv"].split([J * K, J * K, H * V], dim=-1)
        g = -torch.exp(inputs["a_log"]) * F.softplus(inputs["a"] + inputs["dt_bias"])
        o, state = torch_chunk_gated_delta_rule(q.reshape(B, T, J, K), k.reshape(B, T, J, K), v.reshape(B, T, H, V), g=g,
                                                beta=inputs["b"].sigmoid(), output_final_state=True, use_qk_l2norm_in_kernel=normalize)
        o = o.reshape(B, T, H * V)
        assert o.dtype == torch.float64 and state.dtype == torch.float64
        gradient = drawn(*o.shape)
        o.backward(gradient)
        for key, value in inputs.items():
            tensors[f"{name}/in/{key}"] = to(value.detach(), torch.float32)
            tensors[f"{name}/grad/{key}"] = value.grad
        tensors[f"{name}/o"] = o.detach().contiguous()
        tensors[f"{name}/state"] = state.detach().contiguous()
        tensors[f"{name}/gout"] = gradient
    save_file(tensors, HERE / "delta_rule.safetensors")


if __name__ == "__main__":
    main()
