#!/usr/bin/env python3
"""References of Mamba 2's scan and its gated norm: transformers' modules, in fp64. Written beside the others:

    python tests/data/make_selective_scan.py

with PyTorch, transformers and safetensors; tests/data/ops/selective_scan.safetensors. transformers computes the scan in fp32 whatever its
inputs are; here Tensor.float() is double() while it runs. The inputs are rounded to f32 first, so that they are the same in every dtype.
"""
import pathlib

import torch
from safetensors.torch import save_file
from transformers.models.granitemoehybrid.modeling_granitemoehybrid import GraniteMoeHybridRMSNormGated
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan

HERE = pathlib.Path(__file__).parent / "ops"

CASES = {  # name: B, T, H, P, G, N, limits of dt
    "one": (2, 1, 4, 5, 2, 3, (0.0, float("inf"))),
    "groups": (1, 70, 6, 2, 2, 3, (0.0, float("inf"))),
    "limits": (1, 66, 3, 3, 1, 3, (0.3, 1.5)),
}


def drawn(*shape):
    return torch.randn(shape, dtype=torch.float32).double()


def main():
    torch.manual_seed(47)
    torch.Tensor.float = torch.Tensor.double
    tensors = {}
    for name, (B, T, H, P, G, N, limits) in CASES.items():
        inputs = {"xbc": drawn(B, T, H * P + 2 * G * N), "dt": drawn(B, T, H), "a_log": drawn(H) * 0.5, "dt_bias": drawn(H), "d": drawn(H),
                  "gate": drawn(B, T, H * P), "gamma": drawn(H * P)}
        inputs = {key: value.float().to(torch.float32).double().requires_grad_() for key, value in inputs.items()}
        x, b, c = inputs["xbc"].split([H * P, G * N, G * N], dim=-1)
        y, state = mamba2_chunk_scan(x.reshape(B, T, H, P), inputs["dt"], -torch.exp(inputs["a_log"]), b.reshape(B, T, G, N),
                                     c.reshape(B, T, G, N), chunk_size=32, D=inputs["d"], dt_bias=inputs["dt_bias"], dt_softplus=True,
                                     dt_limit=limits, return_final_states=True)
        y = y.reshape(B, T, H * P)
        norm = GraniteMoeHybridRMSNormGated(H * P, H * P // G, 1e-5).double()
        norm.weight = torch.nn.Parameter(inputs["gamma"].detach())
        to = torch.Tensor.to
        torch.Tensor.to = lambda self, *a, **k: to(self, *[torch.float64 if i is torch.float32 else i for i in a], **k)
        out = norm(y, inputs["gate"])
        torch.Tensor.to = to
        assert out.dtype == torch.float64
        gradient = drawn(*out.shape)
        out.backward(gradient)
        inputs["gamma"].grad = norm.weight.grad
        for key, value in inputs.items():
            tensors[f"{name}/in/{key}"] = value.detach().to(torch.float32)
            tensors[f"{name}/grad/{key}"] = value.grad
        tensors[f"{name}/y"] = y.detach().contiguous()
        tensors[f"{name}/state"] = state.detach().transpose(-1, -2).contiguous()
        tensors[f"{name}/out"] = out.detach()
        tensors[f"{name}/gout"] = gradient
    save_file(tensors, HERE / "selective_scan.safetensors")


if __name__ == "__main__":
    main()
