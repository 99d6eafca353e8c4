"""Layers, activations and losses."""

from __future__ import annotations

import math

from .. import _core
from .._core import Parameter, Tensor
from ..errors import UsageError
from .module import Module

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Optional


def _uniform(shape: Any, inputs: int, dtype: Any) -> Parameter:
    """Uniform in [-b, b] with b = 1 / sqrt(inputs), PyTorch's default for weight and bias of linear layers."""
    return Parameter(shape, "uniform", 1 / math.sqrt(3 * inputs) if inputs else 0.0, dtype=_name_of(dtype))


def _name_of(dtype: Any) -> str:
    return "f32" if dtype is None else str(dtype)


def _check_device(device: Any) -> None:
    if device is not None and str(device) != "cpu":
        raise UsageError(f"device: expected None, got {device}: make the module and move it with to(device)")


class Linear(Module):
    """x[..., in_features] to [..., out_features]: x weight^T + bias."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        _check_device(device)
        self.in_features, self.out_features = in_features, out_features
        self.weight = _uniform((out_features, in_features), in_features, dtype)
        self.bias = _uniform((out_features,), in_features, dtype) if bias else None

    def forward(self, input: Tensor) -> Tensor:
        return _core.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """The rows of weight[num_embeddings, embedding_dim] that ids[...] name."""

    def __init__(self, num_embeddings: int, embedding_dim: int, device: Any = None, dtype: Any = None) -> None:
        _check_device(device)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter((num_embeddings, embedding_dim), "normal", 1.0, embedding=True, dtype=_name_of(dtype))

    def forward(self, input: Any) -> Tensor:
        return _core.embedding(input, self.weight)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


def _channels(normalized_shape: Any) -> int:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if len(shape) != 1:
        raise UsageError(f"normalized_shape: expected the extent of the last axis, got {shape}: flatten the axes to normalize over several")
    return shape[0]


class LayerNorm(Module):
    """Normalizes over the last axis."""

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        _check_device(device)
        self.normalized_shape, self.eps = (_channels(normalized_shape),), eps
        self.weight = Parameter(self.normalized_shape, "ones", dtype=_name_of(dtype)) if elementwise_affine else None
        self.bias = Parameter(self.normalized_shape, "zeros", dtype=_name_of(dtype)) if elementwise_affine and bias else None

    def forward(self, input: Tensor) -> Tensor:
        weight = _core.ones(self.normalized_shape, dtype=input.dtype, device=input.device) if self.weight is None else self.weight
        bias = _core.zeros(self.normalized_shape, dtype=input.dtype, device=input.device) if self.bias is None else self.bias
        return _core.layer_norm(input, weight, bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class RMSNorm(Module):
    """Divides by the root mean square of the last axis. eps=None is the machine epsilon of the input's type, as in PyTorch."""

    _EPSILONS = {"f64": 2.0**-52, "bf16": 2.0**-7, "f16": 2.0**-10}

    def __init__(self, normalized_shape: Any, eps: Optional[float] = None, elementwise_affine: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        _check_device(device)
        self.normalized_shape, self.eps = (_channels(normalized_shape),), eps
        self.weight = Parameter(self.normalized_shape, "ones", dtype=_name_of(dtype)) if elementwise_affine else None

    def forward(self, input: Tensor) -> Tensor:
        weight = _core.ones(self.normalized_shape, dtype=input.dtype, device=input.device) if self.weight is None else self.weight
        eps = self._EPSILONS.get(str(input.dtype), 2.0**-23) if self.eps is None else self.eps
        return _core.rms_norm(input, weight, eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class Dropout(Module):
    """While training, sets elements to 0 with probability p and scales the others by 1 / (1 - p). In a loop of your own the masks follow
    from manual_seed(); in a Trainer's run from its seed, the block and the sample, so that a forward that is repeated draws them again."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0 <= p <= 1:
            raise UsageError(f"p: expected a probability from 0 to 1, got {p}")
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        return _core._dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Identity(Module):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, input: Any) -> Any:
        return input


class Flatten(Module):
    """Joins the axes from start_dim to end_dim."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        shape = tuple(input.shape)
        first, last = (axis + len(shape) if axis < 0 else axis for axis in (self.start_dim, self.end_dim))
        return input.reshape((*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


class _Activation(Module):
    """An activation without settings. inplace is accepted, and ignored."""

    _function: Any = None

    def __init__(self, inplace: bool = False) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        return type(self)._function(input)


class ReLU(_Activation):
    _function = _core.relu


class SiLU(_Activation):
    _function = _core.silu


class Tanh(_Activation):
    _function = _core.tanh


class Sigmoid(_Activation):
    _function = _core.sigmoid


class Mish(_Activation):
    _function = _core.mish


class Hardswish(_Activation):
    _function = _core.hardswish


class GELU(Module):
    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return _core.gelu(input, self.approximate)


class LeakyReLU(Module):
    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        return _core.leaky_relu(input, self.negative_slope)


class ELU(Module):
    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return _core.elu(input, self.alpha)


class Softplus(Module):
    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return _core.softplus(input, self.beta, self.threshold)


class Softmax(Module):
    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return _core.softmax(input, self.dim)


class CrossEntropyLoss(Module):
    def __init__(self, *, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0) -> None:
        self._settings = dict(reduction=reduction, ignore_index=ignore_index, label_smoothing=label_smoothing)

    def forward(self, input: Tensor, target: Any) -> Tensor:
        return _core.cross_entropy(input, target, **self._settings)


class MSELoss(Module):
    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _core.mse_loss(input, target, self.reduction)
