#!/usr/bin/env python3
"""References of forms of ops that the first data has not: pooling in ceil mode, "..." in einsum. Written beside the others:

    python tests/data/make_ops_more.py

with PyTorch and safetensors; tests/data/ops/{pool_ceil,einsum_ellipsis}.safetensors and their cases in tests/data/ops/index.json.
"""
import json
import pathlib

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent / "ops"

POOLS = [  # op, shape, kernel, stride, padding, count_include_pad
    ("max", (2, 3, 7, 8), (2, 3), (2, 2), (1, 1), True),
    ("max", (1, 2, 5, 5), (3, 3), (2, 3), (0, 1), True),
    ("max", (1, 1, 4, 6), (2, 2), (3, 3), (1, 1), True),  # the last window would begin in the padding behind
    ("avg", (2, 3, 7, 8), (2, 3), (2, 2), (1, 1), True),
    ("avg", (1, 2, 5, 5), (3, 3), (2, 3), (0, 1), True),
    ("avg", (1, 2, 6, 8), (4, 3), (3, 2), (1, 0), True),
    ("avg", (1, 2, 6, 8), (4, 3), (3, 2), (1, 0), False),
    ("avg", (1, 1, 4, 6), (2, 2), (3, 3), (1, 1), False),
]
EQUATIONS = [
    ("...ij,...jk->...ik", (2, 4, 3, 5), (2, 4, 5, 7)),
    ("...ij,...jk", (4, 3, 5), (2, 4, 5, 7)),
    ("b...d,d->b...", (2, 3, 4, 5), (5,)),
    ("...i,...i->...", (2, 1, 5), (3, 5)),
    ("i...,i...->...", (3, 2, 1), (3, 4)),
    ("...i,ij->j...", (2, 3, 4), (4, 5)),
    ("...i,...j->ij", (3, 4), (3, 5)),
    ("i...,j->ji", (4,), (5,)),
]


def case(tensors, index, name, attrs, inputs, run):
    index[name] = {"attrs": attrs, "inputs": {k: list(s) for k, s in inputs.items()}, "int_inputs": {}, "no_grad_inputs": []}
    drawn = {k: torch.randn(s, dtype=torch.float64) for k, s in inputs.items()}
    gradient = None
    for dtype, kind in (("f64", torch.float64), ("f32", torch.float32)):
        leaves = {k: v.to(kind, copy=True).requires_grad_() for k, v in drawn.items()}
        out = run(**leaves)
        if gradient is None:
            gradient = torch.randn(out.shape, dtype=torch.float64)
        out.backward(gradient.to(kind))
        prefix = f"{name}/{dtype}/"
        for k, v in leaves.items():
            tensors[prefix + "in/" + k] = v.detach().contiguous()
            tensors[prefix + "grad/" + k] = v.grad.contiguous()
        tensors[prefix + "out"] = out.detach().contiguous()
        tensors[prefix + "gout"] = gradient.to(kind)


def main():
    torch.manual_seed(20)
    path = HERE / "index.json"
    index = json.loads(path.read_text())
    tensors, cases = {}, {}
    for i, (op, shape, kernel, stride, padding, counts) in enumerate(POOLS):
        attrs = {"op": op, "kernel_size": kernel, "stride": stride, "padding": padding, "count_include_pad": counts}

        def pool(x):
            if op == "max":
                return torch.nn.functional.max_pool2d(x, kernel, stride, padding, ceil_mode=True)
            return torch.nn.functional.avg_pool2d(x, kernel, stride, padding, ceil_mode=True, count_include_pad=counts)

        case(tensors, cases, f"case_{i}", attrs, {"x": shape}, pool)
    save_file(tensors, HERE / "pool_ceil.safetensors")
    index["pool_ceil"] = cases
    tensors, cases = {}, {}
    for i, (equation, a, b) in enumerate(EQUATIONS):
        case(tensors, cases, f"case_{i}", {"equation": equation}, {"a": a, "b": b}, lambda a, b: torch.einsum(equation, a, b))
    save_file(tensors, HERE / "einsum_ellipsis.safetensors")
    index["einsum_ellipsis"] = cases
    path.write_text(json.dumps(index, indent=1))


if __name__ == "__main__":
    main()
