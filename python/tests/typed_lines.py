"""Lines that a PyTorch user types without reading the documentation, and how they are run with any library of PyTorch's names."""

import ast
import copy
import pickle

# In these lines `lib` is torch or spillway; x is f32 [2, 3], i is int64 [2, 3], m is a mask of x, w is a leaf with requires_grad, h is bf16.
SETUP = """
x = lib.tensor([[1., -2., 3.], [4., 5., -6.]])
i = lib.tensor([[0, 1, 2], [3, 4, 5]])
m = lib.tensor([[True, False, True], [False, True, False]])
w = lib.tensor([0.5, -1.5, 2.0], requires_grad=True)
h = lib.tensor([1.5, -2.5]).to(lib.bfloat16)
"""
LINES = r"""
f"{x.mean():.4f}"
f"{x.sum().item():.2f} {i[1, 2]:d}"
f"{x.sum()} {i[0, 1]}"
lib.tensor([2., float("nan"), 1., float("inf")]).sort(), lib.tensor([1., float("nan"), 3.]).topk(2).values.isnan()
(w * w).sort(descending=True).values[0].backward(); w.grad
float(x.sum()), int(x[0, 2]), bool(x[0, 0] > 0), len(x)
[float(row.sum()) for row in x]
[a + b for a, b in zip(i[0], i[1])]
x.sum(dim=1, keepdim=True)
x.mean(dim=(0, 1))
x.sum(axis=0, keepdims=True)
x.max(), x.min(), i.max()
x.max(dim=1)
x.max(dim=1).values, x.min(0).indices
values, indices = lib.max(x, dim=0); values, indices
lib.max(x, 2 * x)
x.argmax(), x.argmax(dim=1), x.argmin(dim=0, keepdim=True)
x.amax(dim=(0, 1)), x.amin(1)
x.std(), x.var(dim=1, correction=0), x.std(dim=0)
x.softmax(dim=-1).sum(dim=-1).sum().round()
x.topk(2, dim=1)
x.cumsum(dim=1), i.cumsum(dim=0)
x.norm()
x.prod(), i.prod(dim=1)
m.sum(), m.sum(dim=0), m.any(), m.all(dim=1)
m.float().mean()
(x > 0).sum().item()
(x > 2).float().mean().item()
x[m]
x[m].sum()
x[x < 0]
x[0], x[-1], x[:, 1], x[0, 2], x[..., -1]
x[None].shape, x[:, None, :].shape, x[..., None].shape
x[[1, 0]], x[:, [0, 2]]
x[i[0, :2]], x[lib.arange(2), lib.tensor([2, 0])]
x[1:, ::2]
x[::-1]
x[5]
y = x.clone(); y[0] = 7; y
y = x.clone(); y[m] = 0; y
y = x.clone(); y[:, 1] = lib.tensor([8., 9.]); y
y = x.clone(); y[x < 0] *= -1; y
y = x.clone(); y[0] += 10; y[1, 2] = 0.5; y
y = x.clone(); y[[0, 1], [1, 2]] = lib.tensor([70., 80.]); y
y = x.clone(); y[0].zero_(); y
i + 1, i * 2, i - 3, -i, i // 2, i % 2, i ** 2
i / 2
i + 0.5
i + x, i * h[0], m + 1, m * 2.5, h + x[0, :2], x + h[0]
2 ** i, 1 - i, 7 // (i + 1), 7 % (i + 2), 1 / (i + 1)
x // 2, x % 2, x ** 2, 2 ** x, abs(x), -x
(i == 2).dtype, i >= 3, i != x
(i > 1) & (i < 5), (i < 1) | m, ~m, m ^ m
i & 3, i | 8, i << 1, i >> 1
lib.arange(5), lib.arange(0, 1, 0.25), lib.arange(1, 7, 2)
lib.zeros(2, 3), lib.ones(2), lib.zeros((2, 3), dtype=lib.int64), lib.full((2,), 3), lib.full((2,), 0.5)
lib.zeros_like(x), lib.ones_like(i), lib.full_like(x, 2)
lib.eye(2), lib.linspace(0, 1, 5)
x + np.ones((2, 3), np.float32), np.float32(2) * x, x * lib.from_numpy(np.arange(3))
x.numpy().sum(), np.asarray(x).shape
x.tolist(), i.tolist(), x[0, 0].item(), i[1, 1].item(), m[0, 0].item()
x.T, x.mT, x.t()
x.view(3, 2), x.view(-1), x.reshape(3, -1), x.flatten()
x.permute(1, 0), x.transpose(0, 1), x.swapaxes(0, 1)
x.unsqueeze(0).shape, x.unsqueeze(-1).shape, x[None].squeeze().shape, x[None].squeeze(0).shape
x[0].expand(2, 3), x[0].repeat(2, 1), x.expand(2, -1, -1).shape
x.chunk(2, dim=1), x.split(2, dim=1), x.split([1, 2], dim=1), x.unbind(0)
lib.cat([x, x], dim=0).shape, lib.stack([x, x], dim=1).shape, lib.cat((i, i), dim=-1)
x.to(lib.float64).dtype, x.double().dtype, x.half().dtype, x.bfloat16().dtype, x.long(), x.int(), x.bool(), i.float()
x.type_as(i), x.to(i), x.cpu(), x.contiguous().is_contiguous()
x.size(), x.size(0), x.dim(), x.ndim, x.numel(), x.shape[-1], x.nelement()
x.dtype == lib.float32, i.dtype == lib.int64, h.dtype, x.is_floating_point()
(w * w).sum().backward(); w.grad
loss = (w * w).sum(); loss.backward(retain_graph=True); loss.backward(); w.grad
loss = (w * w).sum(); loss.backward(); loss.backward()
a = (w * 2).sum(); b = (w * w).sum(); a.backward(); b.backward(); w.grad
y = w * 2; y.retain_grad(); (y * y).sum().backward(); y.grad, w.grad
y = w.detach().clone().requires_grad_(); (y.exp() * 0).sum().backward(); y.grad, y.is_leaf
y = w.clone(); y.sum().backward(); w.grad
y = w * 1; y += 1; y.mul_(2); (y * y).sum().backward(); w.grad
y = w.exp(); y.add_(1); y.sum().backward()
w.add_(1)
y = w * 1; y[0] = 0; (y * y).sum().backward(); w.grad
w[m[0]].sum().backward(); w.grad
w[[0, 0, 2]].sum().backward(); w.grad
lib.where(w > 0, w, 0.0).sum().backward(); w.grad
y = x.clone(); y.add_(1).mul_(2).sub_(1).div_(3); y
y = x.clone(); y += 1; y -= x; y *= 3; y /= 2; y
y = x.clone(); y.copy_(i); y.fill_(2).zero_(); y
y = x.clone(); y.clamp_(min=0); y
y = i.clone(); y += 1.5
x.masked_fill(m, float("-inf")), x.masked_fill(~m, 0)
x.add(1), x.mul(x), x.sub(i), x.div(2), x.pow(2), x.eq(3), x.gt(0), x.add(x, alpha=2)
lib.add(x, 1), lib.mul(x, i), lib.eq(x, x), lib.logical_and(m, m), lib.logical_not(m)
x.square(), x.sign(), x.reciprocal(), x.floor(), x.abs().log2()
x.matmul(x.T), x @ x[0], x.mm(x.T), x[0].dot(x[1])
x.gather(1, lib.tensor([[0, 2], [1, 1]])), x.index_select(1, lib.tensor([2, 0]))
x.nonzero(), m.nonzero()
x.sort(dim=1), x.argsort(dim=1)
x.equal(x), lib.equal(x, i), lib.allclose(x, x + 1e-9), x.isnan().any().item(), lib.isfinite(x).all().item()
copy.deepcopy(x), copy.copy(i)
pickle.loads(pickle.dumps(x)), pickle.loads(pickle.dumps(h)), pickle.loads(pickle.dumps(w)).requires_grad
y = lib.no_grad()(lambda: (w * 2).requires_grad)(); y
with lib.no_grad(): y = (w * 2).requires_grad\ny
x in [1, 2]
3. in x, 8. in x
x.requires_grad, w.requires_grad, (w * 2).requires_grad, w.detach().requires_grad
lib.tensor(3.5), lib.tensor([1, 2.5]), lib.tensor([True]), lib.tensor([[1, 2], [3, 4]], dtype=lib.float32)
lib.tensor([1., 2.], dtype=lib.float64, requires_grad=True).requires_grad
lib.from_numpy(np.arange(3.0)), lib.as_tensor([1, 2])
x + "a"
x.sum(dim=5)
x.view(4)
x @ i
lib.cat([x, i], 0), lib.cat([x, lib.ones(3, 3)], 1)
x.item()
if x: pass
bool(x.sum() > 0) and not m[0, 1]
hash(x) == hash(x), x is x, {x: 1}[x]
""".strip("\n").split("\n")


def plain(value):
    """Returns a result without the library: a tensor as (dtype, shape, list)."""
    if hasattr(value, "tolist") and hasattr(value, "requires_grad"):
        kind = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16", "int64": "i64", "int32": "i32", "uint8": "u8"}
        name = str(value.dtype).removeprefix("torch.")
        numbers = value.detach().cpu()
        numbers = numbers.float() if name in ("bfloat16", "bf16") else numbers
        return (kind.get(name, name), tuple(value.shape), rounded(numbers.tolist()))
    if isinstance(value, (tuple, list)):
        return tuple(plain(one) for one in value)
    if type(value).__name__ in ("dtype", "str"):
        return str(value).removeprefix("torch.").replace("bfloat16", "bf16").replace("float64", "f64").replace("float16", "f16")
    return rounded(value.item() if hasattr(value, "item") else value)


def rounded(value):
    if isinstance(value, list):
        return [rounded(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if value == value else "nan"  # the text "nan" equals itself, unlike the number
    return value


def run(line, lib, np):
    """Returns what the line gives: its last expression, plain; or the name of the kind of error that it raises."""
    names = {"lib": lib, "np": np, "copy": copy, "pickle": pickle}
    exec(SETUP, names)
    body = ast.parse(line.replace("\\n", "\n")).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    try:
        exec(compile(ast.Module(body, []), line, "exec"), names)
        return plain(eval(compile(ast.Expression(last.value), line, "eval"), names)) if last else None
    except Exception as error:
        return kind_of(error)


def kind_of(error):
    """Returns the built-in kind of an error; PyTorch's RuntimeError and this library's ValueError count as one."""
    for kind in (IndexError, TypeError, AttributeError, ValueError, RuntimeError):
        if isinstance(error, kind):
            return "raises " + {"RuntimeError": "ValueError"}.get(kind.__name__, kind.__name__)
    return "raises " + type(error).__name__
