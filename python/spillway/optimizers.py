"""Optimizers with PyTorch's names, defaults and formulas. `params`: a Model, or tensors with requires_grad."""

from __future__ import annotations

import os
from . import _core
from ._core import Tensor
from .errors import UsageTypeError
from .models import Model

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Iterable, Union

    Parameters = Union[Model, Iterable[Tensor]]


def _tensors(params: Parameters) -> Iterable[Tensor]:
    return params.trained() if isinstance(params, Model) else params


def _betas(betas: tuple[float, float]) -> tuple[float, float]:
    try:
        first, second = betas
    except (TypeError, ValueError):
        raise UsageTypeError(f"betas: expected two numbers, got {betas!r}") from None
    return first, second


class Optimizer(_core.Optimizer):
    """The base class: step(), zero_grad(), gradient_norm(), lr, save(file) and load(file)."""

    def __init__(self, rule: str, params: Parameters, **settings: float) -> None:
        super().__init__(rule, settings, _tensors(params))

    def save(self, file: str | os.PathLike) -> None:
        """Writes master weights, moments and step counts to a safetensors file, but not the model's weights (use Model.save)."""
        self._save(file)

    def load(self, file: str | os.PathLike) -> None:
        """Loads what save() wrote, bit for bit."""
        self._load(file)


class SGD(Optimizer):
    def __init__(self, params: Parameters, lr: float = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
                 nesterov: bool = False) -> None:
        super().__init__("sgd", params, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov)


class Adam(Optimizer):
    def __init__(self, params: Parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False) -> None:
        beta1, beta2 = _betas(betas)
        super().__init__("adam", params, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)


class AdamW(Optimizer):
    def __init__(self, params: Parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False) -> None:
        beta1, beta2 = _betas(betas)
        super().__init__("adamw", params, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)


class Adagrad(Optimizer):
    def __init__(self, params: Parameters, lr: float = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0, eps: float = 1e-10) -> None:
        super().__init__("adagrad", params, lr=lr, lr_decay=lr_decay, weight_decay=weight_decay,
                         initial_accumulator_value=initial_accumulator_value, eps=eps)


class RMSprop(Optimizer):
    def __init__(self, params: Parameters, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
                 momentum: float = 0, centered: bool = False) -> None:
        super().__init__("rmsprop", params, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered)


class Lion(Optimizer):
    """Lion, which PyTorch does not have, with the defaults of its paper (arXiv:2302.06675)."""

    def __init__(self, params: Parameters, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0) -> None:
        beta1, beta2 = _betas(betas)
        super().__init__("lion", params, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay)


class Muon(Optimizer):
    """Muon for matrices, scaled so that learning rates of AdamW fit; AdamW with `betas` and `eps` for all other parameters."""

    def __init__(self, params: Parameters, lr: float = 1e-3, momentum: float = 0.95, weight_decay: float = 0.1, nesterov: bool = True,
                 betas: tuple[float, float] = (0.9, 0.95), eps: float = 1e-8) -> None:
        beta1, beta2 = _betas(betas)
        super().__init__("muon", params, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov, beta1=beta1, beta2=beta2,
                         eps=eps)


class Adafactor(Optimizer):
    def __init__(self, params: Parameters, lr: float = 1e-2, beta2_decay: float = -0.8, d: float = 1, eps2: float = 1e-3,
                 weight_decay: float = 0) -> None:
        super().__init__("adafactor", params, lr=lr, beta2_decay=beta2_decay, d=d, eps2=eps2, weight_decay=weight_decay)
