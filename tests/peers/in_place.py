"""Which in-place writes between forward and backward PyTorch refuses: the table of python/tests/test_in_place.py.

For each operation of CASES, each tensor (the inputs x and w, the output y) is written to under no_grad() after the forward pass. Prints a row
an operation: what raises. Usage: python tests/peers/in_place.py (wants torch)
"""

import torch
import torch.nn.functional as F

X = torch.tensor([[0.5, 1.5, 2.5], [1.0, 2.0, 3.0]], dtype=torch.float64)
W = torch.tensor([[1.5, 0.5, 2.0], [2.5, 1.0, 0.5]], dtype=torch.float64)
CASES = {
    "exp": lambda x, w: x.exp(), "log": lambda x, w: x.log(), "sqrt": lambda x, w: x.sqrt(), "rsqrt": lambda x, w: x.rsqrt(),
    "tanh": lambda x, w: x.tanh(), "sigmoid": lambda x, w: x.sigmoid(), "relu": lambda x, w: x.relu(), "silu": lambda x, w: F.silu(x),
    "gelu": lambda x, w: F.gelu(x), "softplus": lambda x, w: F.softplus(x), "abs": lambda x, w: x.abs(), "clamp": lambda x, w: x.clamp(0, 2),
    "leaky_relu": lambda x, w: F.leaky_relu(x), "elu": lambda x, w: F.elu(x), "hardswish": lambda x, w: F.hardswish(x),
    "mish": lambda x, w: F.mish(x), "neg": lambda x, w: -x, "sum": lambda x, w: x.sum(1), "mean": lambda x, w: x.mean(1),
    "softmax": lambda x, w: x.softmax(-1), "log_softmax": lambda x, w: x.log_softmax(-1), "cumsum": lambda x, w: x.cumsum(-1),
    "logsumexp": lambda x, w: x.logsumexp(-1), "var": lambda x, w: x.var(-1), "square": lambda x, w: x**2, "scale": lambda x, w: x * 3,
    "reshape": lambda x, w: x.reshape(3, 2), "transpose": lambda x, w: x.T, "index": lambda x, w: x[:, 1:],
    "add": lambda x, w: x + w, "sub": lambda x, w: x - w, "mul": lambda x, w: x * w, "div": lambda x, w: x / w, "pow": lambda x, w: x**w,
    "maximum": lambda x, w: torch.maximum(x, w), "minimum": lambda x, w: torch.minimum(x, w), "matmul": lambda x, w: x @ w.T,
    "linear": lambda x, w: F.linear(x, w), "mse_loss": lambda x, w: F.mse_loss(x, w), "l1_loss": lambda x, w: F.l1_loss(x, w),
    "huber_loss": lambda x, w: F.huber_loss(x, w), "rms_norm": lambda x, w: F.rms_norm(x, (3,), w[0]),
    "layer_norm": lambda x, w: F.layer_norm(x, (3,), w[0], w[1]), "cat": lambda x, w: torch.cat([x, w]),
    "cross_entropy": lambda x, w: F.cross_entropy(x, torch.tensor([0, 2])), "where": lambda x, w: torch.where(torch.tensor([True, False, True]), x, w),
}


def raises(operation, wanted, written):
    x, w = X.clone().requires_grad_("x" in wanted), W.clone().requires_grad_("w" in wanted)
    y = operation(x, w)
    if not y.requires_grad:
        return False
    loss = y.sum()
    with torch.no_grad():
        {"x": x, "w": w, "y": y}[written].copy_(torch.full_like({"x": x, "w": w, "y": y}[written], 1.25))
    try:
        loss.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
        return True
    return False


for name, operation in CASES.items():
    row = []
    for wanted in ("xw", "x", "w"):
        for written in "xwy":
            if raises(operation, wanted, written):
                row.append(f"{wanted}:{written}")
    print(f'    "{name}": "{" ".join(row)}",')
