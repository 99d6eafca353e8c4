"""Random calls of what both PyTorch and Spillway have: each gives the same values, shape and dtype in both, or the same kind of error."""

import re

import numpy as np
from typed_lines import kind_of

DTYPES = ["float32", "float32", "float64", "bfloat16", "float16", "int64", "int64", "int32", "uint8", "bool"]
UNARY = ["abs", "exp", "sqrt", "rsqrt", "tanh", "sigmoid", "relu", "neg", "square", "reciprocal", "floor", "ceil", "round", "trunc", "sign", "sin",
         "cos", "erf", "log1p", "expm1", "isnan", "isinf", "isfinite", "logical_not", "bitwise_not", "t", "flatten", "squeeze", "nonzero",
         "clone", "contiguous", "float", "double", "half", "bfloat16", "long", "int", "bool", "byte", "numel", "dim", "tolist", "size", "sum", "mean",
         "max", "min", "argmax", "argmin", "any", "all", "prod", "var", "std", "norm", "amax", "amin", "unbind", "is_floating_point", "detach"]
BINARY = ["add", "sub", "mul", "div", "pow", "floor_divide", "remainder", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum", "logical_and",
          "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "matmul", "true_divide", "type_as", "expand_as", "view_as"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "&", "|", "^", "@"]
ALONG = ["sum", "mean", "max", "min", "argmax", "argmin", "any", "all", "prod", "var", "std", "amax", "amin", "logsumexp"]
AXIS = ["softmax", "log_softmax", "cumsum", "unsqueeze", "squeeze", "unbind", "argsort", "sort"]
WRITES = ["add_", "sub_", "mul_", "div_", "pow_", "fill_", "copy_", "zero_", "clamp_", "relu_", "neg_", "masked_fill_", "+=", "-=", "*=", "/="]
CREATION = ["zeros", "ones", "full", "arange", "eye", "linspace", "zeros_like", "ones_like", "full_like", "cat", "stack", "where", "tensor"]


def shape_of(draw, like=None):
    if like and draw.random() < 0.7:
        return tuple(extent if draw.random() < 0.8 else 1 for extent in like[draw.randrange(len(like) + 1):])
    return tuple(draw.choice((1, 2, 3, 4)) for _ in range(draw.choice((0, 1, 2, 2, 3))))


def tensor_of(draw, shape=None, dtype=None):
    """Returns a tensor as Python code."""
    dtype = dtype or draw.choice(DTYPES)
    shape = shape_of(draw) if shape is None else shape
    count = int(np.prod(shape, dtype=int))
    if dtype == "bool":
        values = [draw.random() < 0.5 for _ in range(count)]
    elif dtype in ("int64", "int32"):
        values = [draw.randrange(-5, 6) for _ in range(count)]
    elif dtype == "uint8":
        values = [draw.randrange(0, 9) for _ in range(count)]
    else:
        values = [draw.randrange(-8, 9) / 4 for _ in range(count)]
    nested = np.array(values, dtype=object).reshape(shape).tolist()
    return f"lib.tensor({nested!r}, dtype=lib.{dtype})", shape, dtype


def number(draw):
    return repr(draw.choice((0, 1, 2, -3, 7, 0.5, -1.5, 2.0, True, False)))


def operand(draw, shape):
    if draw.random() < 0.35:
        return number(draw)
    return tensor_of(draw, shape_of(draw, shape))[0]


def axis(draw, shape):
    rank = max(len(shape), 1)
    return draw.randrange(-rank, rank) if draw.random() < 0.93 else draw.choice((rank, -rank - 1, 9))


def key(draw, shape):
    parts, left = [], list(shape)
    while left and draw.random() < 0.8:
        extent = left.pop(0)
        kind = draw.random()
        if kind < 0.3:
            parts.append(str(draw.randrange(-extent, extent) if draw.random() < 0.95 else extent))
        elif kind < 0.6:
            bounds = [draw.choice(("", "0", "1", "-1", str(extent), "9")) for _ in range(2)]
            parts.append(":".join(bounds) + draw.choice(("", "", "", ":2", ":-1")))
        elif kind < 0.7:
            parts.append("None")
            left.insert(0, extent)
        elif kind < 0.85:
            parts.append(repr([draw.randrange(-extent, extent) for _ in range(2)]))
        elif kind < 0.95:
            parts.append(f"lib.tensor({[draw.random() < 0.5 for _ in range(extent)]!r})")
        else:
            parts.append("...")
            break
    return ", ".join(parts) or "..."


def call(draw):
    """Returns a random expression of `lib`."""
    if draw.random() < 0.15:
        return gradient(draw)
    x, shape, dtype = tensor_of(draw)
    kind = draw.random()
    if kind < 0.12:
        return f"{x}.{draw.choice(UNARY)}()"
    if kind < 0.2:
        return f"lib.{draw.choice(['abs', 'exp', 'relu', 'neg', 'sum', 'mean', 'max', 'min', 'argmax', 'any', 'all', 'isnan', 'round'])}({x})"
    if kind < 0.3:
        return f"{x}.{draw.choice(BINARY)}({operand(draw, shape)})"
    if kind < 0.48:
        pair = [x, operand(draw, shape)]
        draw.shuffle(pair)
        return f"({pair[0]}) {draw.choice(OPERATORS)} ({pair[1]})"
    if kind < 0.62:
        keep = draw.choice(("", "", ", keepdim=True", ", keepdim=False"))
        return f"{x}.{draw.choice(ALONG)}({draw.choice(('', 'dim='))}{axis(draw, shape)}{keep})"
    if kind < 0.68:
        return f"{x}.{draw.choice(AXIS)}({draw.choice(('', 'dim='))}{axis(draw, shape)})"
    if kind < 0.8:
        return f"{x}[{key(draw, shape)}]"
    if kind < 0.86:
        return f"assigned({x}, lambda x: x.__setitem__({spelled(key(draw, shape))}, {operand(draw, shape)}))"
    if kind < 0.93:
        name = draw.choice(WRITES)
        if name.endswith("="):
            return f"augmented({x}, {name!r}, {operand(draw, shape)})"
        arguments = {"zero_": "", "relu_": "", "neg_": "", "clamp_": draw.choice(("min=0", "max=1", "-1, 1")), "fill_": number(draw),
                     "masked_fill_": f"{tensor_of(draw, shape_of(draw, shape), 'bool')[0]}, {number(draw)}",
                     "copy_": tensor_of(draw, shape_of(draw, shape))[0]}.get(name, operand(draw, shape))
        return f"{x}.{name}({arguments})"
    return creation(draw, x, shape)


def spelled(key):
    return f"sliced[{key}]"


def gradient(draw):
    """Returns an expression of the gradients of x, and of what it is combined with."""
    shape = shape_of(draw)
    x = tensor_of(draw, shape, draw.choice(("float64", "float64", "float32")))[0]
    one, keep = axis(draw, shape), draw.choice(("", ", keepdim=True"))
    function = draw.choice((
        f"x.{draw.choice(['exp', 'tanh', 'sigmoid', 'relu', 'neg', 'square', 'abs', 'sin', 'cos', 'erf', 'clone', 'floor', 'sign', 'flatten', 'contiguous'])}()",
        f"x {draw.choice('+-*')} {operand(draw, shape)}", f"{operand(draw, shape)} {draw.choice('+-*')} x", f"x / {draw.choice((2, -0.5))}",
        f"x.{draw.choice(['sum', 'mean', 'logsumexp', 'var', 'amax', 'std', 'std'])}({one}{keep})", f"x.{draw.choice(['softmax', 'log_softmax', 'cumsum'])}({one})",
        f"x[{key(draw, shape)}]", f"x.max({one}).values", "x.unsqueeze(0).expand(2, *x.shape)", f"x.squeeze({one})",
        f"assigned(x * 1, lambda y: y.__setitem__({spelled(key(draw, shape))}, {draw.choice((number(draw), 'x.sum()'))}))",
        f"augmented(x * 1, {draw.choice(('+=', '*=', '-=', '/='))!r}, {draw.choice(('2.0', 'x'))})", "(x * 2).clamp_(min=0.3)", "(x * 2).exp_()",
        f"lib.where(x > 0, x, {operand(draw, ())})", "x.double()", "x.half().float()", "x.norm()", "x.norm(dim=-1)", "(x - x.detach()).norm()", "x.reshape(-1)", "x.t()",
        f"lib.cat([x.flatten(), x.flatten() * 2])", "lib.stack([x, x * x], dim=-1)", "x.T @ x" if len(shape) == 2 else "x * x",
    ))
    return f"gradient({x}, lambda x: {function})"


def creation(draw, x, shape):
    name, extents = draw.choice(CREATION), shape_of(draw)
    if name in ("zeros", "ones"):
        return f"lib.{name}({extents!r}{draw.choice(('', ', dtype=lib.int64', ', dtype=lib.float64'))})"
    if name == "full":
        return f"lib.full({extents!r}, {number(draw)})"
    if name == "arange":
        return "lib.arange(" + draw.choice(("5", "1, 7", "0, 6, 2", "0.0, 2.0, 0.5", "3.0", "5, 0, -2", "2, 5, dtype=lib.float32")) + ")"
    if name == "eye":
        return f"lib.eye({draw.randrange(1, 4)}{draw.choice(('', ', 2'))})"
    if name == "linspace":
        return f"lib.linspace({draw.randrange(-3, 3)}, {draw.randrange(4, 9)}, {draw.randrange(1, 7)})"
    if name in ("zeros_like", "ones_like"):
        return f"lib.{name}({x})"
    if name == "full_like":
        return f"lib.full_like({x}, {draw.randrange(0, 2)})"
    if name in ("cat", "stack"):
        other = tensor_of(draw, shape if draw.random() < 0.8 else None)[0]
        return f"lib.{name}([{x}, {other}], dim={axis(draw, shape)})"
    if name == "where":
        return f"lib.where({tensor_of(draw, shape_of(draw, shape), 'bool')[0]}, {x}, {operand(draw, shape)})"
    return x


class Sliced:
    def __getitem__(self, key):
        return key


def assigned(x, write):
    write(x)
    return x


def augmented(x, operator, value):
    names = {"x": x, "value": value}
    exec(f"x {operator} value", names)
    return names["x"]


def gradient_of(x, function):
    x.requires_grad_()
    y = function(x)
    (y * y.detach() * 0.5 + y).sum().backward()
    return y.detach(), x.grad


def result(expression, lib):
    """Returns what an expression gives, without the library: ("tensor", dtype, shape, values), a tuple of such, a number, or an error's kind."""
    try:
        return seen(eval(expression, {"lib": lib, "assigned": assigned, "augmented": augmented, "sliced": Sliced(), "gradient": gradient_of}))
    except Exception as error:
        return (kind_of(error), str(error))


def seen(value):
    if hasattr(value, "requires_grad"):
        name = str(value.dtype).removeprefix("torch.")
        name = {"f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16", "i64": "int64", "i32": "int32", "u8": "uint8"}.get(name, name)
        wide = value.detach()
        wide = wide.float() if name in ("bfloat16", "float16") else wide
        return ("tensor", name, tuple(value.shape), wide.tolist())
    if isinstance(value, (tuple, list)):
        return tuple(seen(one) for one in value)
    return value


NEAR = {"float32": 2e-6, "float64": 1e-12, "bfloat16": 2e-2, "float16": 3e-3}


def same(ours, torchs):
    if isinstance(torchs, tuple) and torchs and torchs[0] == "tensor":
        return (isinstance(ours, tuple) and ours[:3] == torchs[:3]
                and np.allclose(np.array(ours[3], float), np.array(torchs[3], float), rtol=NEAR.get(torchs[1], 0), atol=NEAR.get(torchs[1], 0), equal_nan=True))
    if isinstance(torchs, tuple) and torchs and isinstance(torchs[0], str) and torchs[0].startswith("raises"):
        return isinstance(ours, tuple) and ours[:1] == torchs[:1]
    if isinstance(torchs, tuple):
        return isinstance(ours, tuple) and len(ours) == len(torchs) and all(map(same, ours, torchs))
    return ours == torchs or (isinstance(ours, float) and np.allclose(ours, torchs, equal_nan=True))


def is_unknown(expected):
    """Whether PyTorch itself does not have this operation for the dtype."""
    return isinstance(expected, tuple) and expected[:1] and str(expected[0]).startswith("raises") and "not implemented for" in str(expected[1])


def is_exact(expression):
    """Whether uint8 is compared with a negative number, exactly here, and after it has wrapped in PyTorch: a difference on purpose."""
    return "uint8" in expression and re.search(r"-\d", expression) and re.search(r"\.(eq|ne|lt|le|gt|ge)\(|\) (==|!=|<|<=|>|>=) \(", expression)


def is_refused(found):
    """Whether a number was refused that the dtype cannot hold, where PyTorch wraps it or drops its fraction: a difference on purpose."""
    return isinstance(found, tuple) and len(found) == 2 and ("which is out of its range" in str(found[1]) or "whole numbers in the range of" in str(found[1]))
