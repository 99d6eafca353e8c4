"""Optimizers with PyTorch's names, defaults and formulas. `params`: a Model, a Module, tensors with requires_grad, or parameter groups."""

from __future__ import annotations

import os

from .. import _core
from .._core import Tensor
from ..errors import UsageError, UsageKeyError, UsageTypeError
from ..models import Model
from ..nn import Module
from . import lr_scheduler

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping, Optional, Union

    Parameters = Union[Model, Module, Iterable[Tensor], Iterable[dict[str, Any]]]


def _tensors(params: Any) -> list[Tensor]:
    if isinstance(params, Tensor):
        raise UsageTypeError("params: expected a list of tensors, got one Tensor: write [tensor]")
    if isinstance(params, (Model, Module)):
        return [parameter for parameter in params.parameters() if parameter.requires_grad]
    if not hasattr(params, "__iter__") or isinstance(params, (str, bytes)):
        raise UsageTypeError(f"params: expected a model, tensors or parameter groups, got {type(params).__name__}")
    found = []
    for one in params:
        if not isinstance(one, (Tensor, dict)):
            raise UsageTypeError(f"params: expected Tensors or parameter groups, got {type(one).__name__}")
        found.append(one)
    return found


class Optimizer(_core.Optimizer):
    """The base class. As in PyTorch, `param_groups` is a list of dictionaries with "params" and settings, which may be changed between steps.
    save(file) and load(file) keep the state exactly; state_dict() and load_state_dict() have PyTorch's form and exchange state with it."""

    param_groups: list[dict[str, Any]] = []

    def __init__(self, rule: str, params: Parameters, **defaults: Any) -> None:
        super().__init__(rule)
        self.defaults = defaults
        self.param_groups = []
        given = params if isinstance(params, (Model, Module)) else _tensors(params)
        groups = given if isinstance(given, list) and any(isinstance(one, dict) for one in given) else [{"params": given}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with settings of their own: {"params": [...], "lr": 1e-4}. Those that are left out are the optimizer's."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise UsageTypeError(f'params: expected parameter groups with "params" only, or tensors only, got {type(param_group).__name__}')
        group = {**self.defaults, **param_group, "params": _tensors(param_group["params"])}
        unknown = [key for key in group if key not in self.defaults and key not in ("params", "name", "initial_lr")]
        if unknown:
            raise UsageKeyError(f"params: expected settings among {', '.join(self.defaults)}, got {', '.join(map(str, unknown))}")
        self._add(self._settings(group), group["params"])
        self.param_groups.append(group)

    def _settings(self, group: dict[str, Any]) -> dict[str, float]:
        settings = {key: group[key] for key in self.defaults}
        if "betas" in settings:
            try:
                settings["beta1"], settings["beta2"] = settings.pop("betas")
            except (TypeError, ValueError):
                raise UsageTypeError(f"betas: expected two numbers, got {group['betas']!r}") from None
        return settings

    def step(self, closure: Optional[Callable[[], Any]] = None, *, gradient_scale: float = 1.0, max_norm: Optional[float] = None) -> Any:
        """Updates each parameter that has a gradient; gradients are multiplied by gradient_scale. If max_norm is given, clips their global norm
        and returns the norm before clipping. closure, as in PyTorch, computes the loss first, which is returned then."""
        if closure is not None and not callable(closure):
            raise UsageTypeError(f"closure: expected a function, got {type(closure).__name__}: write step(gradient_scale=...)")
        loss = closure() if closure is not None else None
        norm = self._step([self._settings(group) for group in self.param_groups], gradient_scale, max_norm)
        return norm if closure is None else loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of the parameters: they become None."""
        if set_to_none is not True:
            raise UsageError(f"set_to_none: expected True, got {set_to_none}: a cleared gradient is None, as PyTorch's is by default")
        self._zero_grad()

    @property
    def lr(self) -> float:
        """The learning rate of the steps from now on, of all groups; reading it gives that of the first."""
        return self.param_groups[0]["lr"]

    @lr.setter
    def lr(self, rate: float) -> None:
        for group, settings in [(group, {**group, "lr": rate}) for group in self.param_groups]:
            self._check(self._settings(settings))
            group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        """The state in PyTorch's form: for each parameter with a step its moments by name, and the groups with the parameters' numbers."""
        groups, state, number = [], {}, 0
        for group in self.param_groups:
            numbers = list(range(number, number + len(group["params"])))
            groups.append({**group, "params": numbers})
            number += len(numbers)
        for index in range(number):
            steps, parts = self._state(index)
            if steps > 0:
                state[index] = {"step": _core.tensor(float(steps)), **parts}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads what state_dict() of this optimizer, or of PyTorch's of the same name, returned."""
        try:
            groups, given = list(state_dict["param_groups"]), dict(state_dict["state"])
            sizes = [len(group["params"]) for group in groups]
        except (KeyError, TypeError, ValueError):
            raise UsageTypeError('load_state_dict: expected a dictionary with "state" and "param_groups"') from None
        own = [len(group["params"]) for group in self.param_groups]
        if sizes != own:
            raise UsageError(f"load_state_dict: expected groups of {own} parameters, got {sizes}")
        numbers = [number for group in groups for number in group["params"]]
        states = {}
        for index, number in enumerate(numbers):
            if number in given:
                state = {key: value for key, value in given[number].items() if value is not None}
                steps = float(state.pop("step", 1))
                states[index] = (int(steps), {key: v.detach() if hasattr(v, "detach") else v for key, v in state.items()})
        fresh = [{**mine, **{key: value for key, value in group.items() if key in self.defaults or key == "initial_lr"}}
                 for mine, group in zip(self.param_groups, groups)]
        self._set_states([self._settings(group) for group in fresh], states)
        for mine, group in zip(self.param_groups, fresh):
            mine.update({key: value for key, value in group.items() if key != "params"})

    def save(self, file: str | os.PathLike) -> None:
        """Writes master weights, moments and step counts to a safetensors file, but not the model's weights (use Model.save)."""
        self._save(file)

    def load(self, file: str | os.PathLike) -> None:
        """Loads what save() wrote, bit for bit."""
        self._load(file)

    def __repr__(self) -> str:
        groups = [", ".join(f"{key}={value}" for key, value in group.items() if key != "params") + f", {len(group['params'])} parameters"
                  for group in self.param_groups]
        return f"{type(self).__name__}({'; '.join(groups)})"


class SGD(Optimizer):
    def __init__(self, params: Parameters, lr: float = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
                 nesterov: bool = False) -> None:
        super().__init__("sgd", params, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov)


class Adam(Optimizer):
    def __init__(self, params: Parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False) -> None:
        super().__init__("adam", params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)


class AdamW(Optimizer):
    def __init__(self, params: Parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False) -> None:
        super().__init__("adamw", params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)


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
        super().__init__("lion", params, lr=lr, betas=betas, weight_decay=weight_decay)


class Muon(Optimizer):
    """Muon for matrices, scaled so that learning rates of AdamW fit; AdamW with `betas` and `eps` for all other parameters."""

    def __init__(self, params: Parameters, lr: float = 1e-3, momentum: float = 0.95, weight_decay: float = 0.1, nesterov: bool = True,
                 betas: tuple[float, float] = (0.9, 0.95), eps: float = 1e-8) -> None:
        super().__init__("muon", params, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov, betas=betas,
                         eps=eps)


class Adafactor(Optimizer):
    def __init__(self, params: Parameters, lr: float = 1e-2, beta2_decay: float = -0.8, d: float = 1, eps2: float = 1e-3,
                 weight_decay: float = 0) -> None:
        super().__init__("adafactor", params, lr=lr, beta2_decay=beta2_decay, d=d, eps2=eps2, weight_decay=weight_decay)
