"""Values that are written in place between forward and backward: PyTorch's error, and never a wrong gradient."""

import numpy as np
import pytest

import spillway

X, W = [[0.5, 1.5, 2.5], [1.0, 2.0, 3.0]], [[1.5, 0.5, 2.0], [2.5, 1.0, 0.5]]
MASK = np.array([True, False, True])
CASES = {
    "exp": lambda x, w: x.exp(), "log": lambda x, w: x.log(), "sqrt": lambda x, w: x.sqrt(), "rsqrt": lambda x, w: x.rsqrt(),
    "tanh": lambda x, w: x.tanh(), "sigmoid": lambda x, w: x.sigmoid(), "relu": lambda x, w: x.relu(), "silu": lambda x, w: x.silu(),
    "gelu": lambda x, w: x.gelu(), "softplus": lambda x, w: x.softplus(), "abs": lambda x, w: x.abs(), "clamp": lambda x, w: x.clamp(0, 2),
    "leaky_relu": lambda x, w: x.leaky_relu(), "elu": lambda x, w: x.elu(), "hardswish": lambda x, w: x.hardswish(),
    "mish": lambda x, w: x.mish(), "neg": lambda x, w: -x, "sum": lambda x, w: x.sum(1), "mean": lambda x, w: x.mean(1),
    "softmax": lambda x, w: x.softmax(), "log_softmax": lambda x, w: x.log_softmax(), "cumsum": lambda x, w: x.cumsum(),
    "logsumexp": lambda x, w: x.logsumexp(-1), "var": lambda x, w: x.var(-1), "square": lambda x, w: x**2, "scale": lambda x, w: x * 3,
    "reshape": lambda x, w: x.reshape(3, 2), "transpose": lambda x, w: x.T, "index": lambda x, w: x[:, 1:],
    "add": lambda x, w: x + w, "sub": lambda x, w: x - w, "mul": lambda x, w: x * w, "div": lambda x, w: x / w, "pow": lambda x, w: x**w,
    "maximum": lambda x, w: x.maximum(w), "minimum": lambda x, w: x.minimum(w), "matmul": lambda x, w: x @ w.T,
    "linear": lambda x, w: spillway.linear(x, w), "mse_loss": lambda x, w: spillway.mse_loss(x, w),
    "l1_loss": lambda x, w: spillway.l1_loss(x, w), "huber_loss": lambda x, w: spillway.huber_loss(x, w),
    "rms_norm": lambda x, w: spillway.rms_norm(x, w[0]), "layer_norm": lambda x, w: spillway.layer_norm(x, w[0], w[1]),
    "cat": lambda x, w: spillway.cat([x, w]), "cross_entropy": lambda x, w: spillway.cross_entropy(x, np.array([0, 2])),
    "where": lambda x, w: spillway.where(spillway.tensor(np.broadcast_to(MASK, (2, 3))), x, w),
}
# Writes that PyTorch refuses (tests/peers/in_place.py), as "tensors that require a gradient:tensor that is written to".
PYTORCH = {
    "exp": "xw:y x:y", "log": "xw:x x:x", "sqrt": "xw:y x:y", "rsqrt": "xw:y x:y", "tanh": "xw:y x:y", "sigmoid": "xw:y x:y",
    "relu": "xw:y x:y", "silu": "xw:x x:x", "gelu": "xw:x x:x", "softplus": "xw:x x:x", "abs": "xw:x x:x", "clamp": "xw:x x:x",
    "leaky_relu": "xw:x x:x", "elu": "xw:x x:x", "hardswish": "xw:x x:x", "mish": "xw:x x:x", "neg": "", "sum": "", "mean": "",
    "softmax": "xw:y x:y", "log_softmax": "xw:y x:y", "cumsum": "", "logsumexp": "xw:x xw:y x:x x:y", "var": "xw:x x:x",
    "square": "xw:x x:x", "scale": "", "reshape": "", "transpose": "", "index": "", "add": "", "sub": "", "mul": "xw:x xw:w x:w w:x",
    "div": "xw:x xw:w x:w w:x w:w", "pow": "xw:x xw:w xw:y x:x x:w x:y w:x w:w w:y", "maximum": "xw:x xw:w x:x x:w w:x w:w",
    "minimum": "xw:x xw:w x:x x:w w:x w:w", "matmul": "xw:x xw:w x:w w:x", "linear": "xw:x xw:w x:w w:x",
    "mse_loss": "xw:x xw:w x:x x:w w:x w:w", "l1_loss": "", "huber_loss": "xw:x xw:w x:x x:w w:x w:w", "rms_norm": "xw:x xw:w x:x x:w",
    "layer_norm": "xw:x xw:w x:x x:w w:x w:w", "cat": "", "cross_entropy": "", "where": "",
}

# Where these operations save another tensor than PyTorch's do: the input instead of the output or of an intermediate result, or a copy of
# a view (w.T, w[0]). Another write is refused then. Every gradient that is not refused is right, which each cell of the grid asserts.
OURS = PYTORCH | {
    "relu": "xw:x x:x", "softmax": "xw:x x:x", "log_softmax": "xw:x x:x", "logsumexp": "xw:x x:x", "div": "xw:w xw:y x:w w:w w:y",
    "pow": "xw:x xw:w x:x x:w w:x w:w", "matmul": "xw:x w:x", "l1_loss": "xw:x xw:w x:x x:w w:x w:w", "rms_norm": "xw:x x:x x:w w:x",
    "layer_norm": "xw:x x:x x:w w:x", "cross_entropy": "xw:x x:x",
}


def gradients(operation, wanted, written=None):
    x, w = (spillway.tensor(v, dtype="f64", requires_grad=n in wanted) for n, v in (("x", X), ("w", W)))
    y = operation(x, w)
    if not y.requires_grad:
        return None
    loss = y.sum()
    if written:
        target = {"x": x, "w": w, "y": y}[written]
        with spillway.no_grad():
            target.copy_(np.full(target.shape, 1.25))
    loss.backward()
    return [None if t.grad is None else t.grad.tolist() for t in (x, w)]


@pytest.mark.parametrize("name", CASES)
def test_no_gradient_is_computed_from_what_was_written(name):
    raised = []
    for wanted in ("xw", "x", "w"):
        expected = gradients(CASES[name], wanted)
        for written in "xwy" if expected else "":
            try:
                assert gradients(CASES[name], wanted, written) == expected, (wanted, written)
            except spillway.UsageError as error:
                if written == "y" and name in ("transpose", "index"):  # y is a copy here; in PyTorch the write would change x
                    assert "expected a tensor with memory of its own" in str(error)
                    continue
                assert "has been modified by an inplace operation" in str(error)
                raised.append(f"{wanted}:{written}")
    assert " ".join(raised) == OURS[name]


def test_a_write_before_backward_is_refused_and_nothing_is_left_of_it():
    w = spillway.tensor([1.0, 1.0], requires_grad=True)
    loss = (w * w).sum()
    with pytest.raises(spillway.UsageError, match="a leaf Variable that requires grad"):
        w.copy_([0.0, 0.0])
    with spillway.no_grad():
        w.copy_([0.0, 0.0])
    with pytest.raises(spillway.UsageError, match=r"\[backward\] one of the variables needed for gradient computation has been modified by an "
                       r"inplace operation: the f32 \[2\] that mul saved"):
        loss.backward()
    assert w.grad is None
    (w * w + w).sum().backward()
    assert w.grad.tolist() == [1.0, 1.0]


def test_views_detached_tensors_and_shared_memory_count():
    for write in (lambda w: w.detach().copy_([5.0, 5.0]), lambda w: w.reshape(1, 2).detach().copy_([[5.0, 5.0]]),
                  lambda w: spillway.Tensor(w.detach()).copy_([5.0, 5.0])):
        w = spillway.tensor([1.0, 2.0], requires_grad=True)
        loss = (w * w).sum()
        write(w)
        with pytest.raises(spillway.UsageError, match="modified by an inplace operation"):
            loss.backward()


def test_an_optimizers_step_and_loaded_weights_count():
    model, tokens = spillway.Model("gpt2-tiny"), np.arange(16).reshape(2, 8)
    optimizer = spillway.SGD(model, lr=0.1)
    for change in (lambda: optimizer.step(), lambda: model["transformer.wte.weight"].detach().copy_(model["transformer.wte.weight"].numpy() * 2),
                   lambda: model.load_state_dict({n: p.numpy() for n, p in model.named_parameters()}),
                   lambda: model.load_state_dict({n: p.numpy().copy() for n, p in model.named_parameters()}, share=True)):
        model.zero_grad()
        model.loss(tokens).backward()
        loss = model.loss(tokens)
        change()
        with pytest.raises(spillway.UsageError, match="modified by an inplace operation"):
            loss.backward()
    model.zero_grad()
    model.loss(tokens).backward()  # a further forward and backward works
    optimizer.step()


def test_what_is_written_is_recorded():
    w = spillway.tensor([2.0], requires_grad=True)
    y = w * 3
    y.copy_([1.0])
    assert not y.requires_grad
    y.copy_(w * w)
    y.sum().backward()
    assert w.grad.tolist() == [4.0]
    w.grad = None
    y = w * 3
    with spillway.no_grad():
        y.copy_(w)
    y.sum().backward()  # works, because the write was not recorded
    assert w.grad.tolist() == [3.0]
