"""Schedules of the learning rate with PyTorch's names, arguments and numbers: step() after each optimizer step."""

from __future__ import annotations

import bisect
import math

from ..errors import UsageError, UsageTypeError

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping, Optional, Union

    from . import Optimizer


class LRScheduler:
    """The base class. A subclass defines get_lr(), which returns the learning rate of each group at last_epoch, the number of calls of
    step()."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not hasattr(optimizer, "param_groups"):
            raise UsageTypeError(f"optimizer: expected an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group["initial_lr"] = group["lr"]
            elif "initial_lr" not in group:
                raise UsageError(f"last_epoch: expected -1, or groups with initial_lr, got group {number} without: load the optimizer's state "
                                 "first")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def get_lr(self) -> list[float]:
        raise NotImplementedError(f"{type(self).__name__}: expected a schedule to define get_lr()")

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group, as step() set it last."""
        return list(self._last_lr)

    def step(self) -> None:
        """Sets the learning rates of the next optimizer step."""
        self.last_epoch += 1
        self._last_lr = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, self._last_lr):
            group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions."""
        return {key: value for key, value in vars(self).items() if key != "optimizer" and not callable(value) and key != "lr_lambdas"}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads what state_dict() returned. Load the optimizer's state too, which has the learning rates."""
        vars(self).update(state_dict)


class LambdaLR(LRScheduler):
    """The initial rate times lr_lambda(last_epoch); one function, or one for each group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Union[Callable[[int], float], Iterable[Callable[[int], float]]],
                 last_epoch: int = -1) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas: Any = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise UsageError(f"lr_lambda: expected {groups} functions, one for each group, got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [base * factor(self.last_epoch) for base, factor in zip(self.base_lrs, self.lr_lambdas)]


class StepLR(LRScheduler):
    """The initial rate times gamma for each step_size steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """The initial rate times gamma for each of the milestones that is reached."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [base * self.gamma ** bisect.bisect_right(self.milestones, self.last_epoch) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """The initial rate times gamma for each step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class LinearLR(LRScheduler):
    """The initial rate times a factor that goes from start_factor to end_factor over total_iters steps: a warmup."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
                 last_epoch: int = -1) -> None:
        if not 0 < start_factor <= 1:
            raise UsageError(f"start_factor: expected a number above 0 and at most 1, got {start_factor}")
        if not 0 <= end_factor <= 1:
            raise UsageError(f"end_factor: expected a number from 0 to 1, got {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        part = min(self.last_epoch, self.total_iters) / self.total_iters if self.total_iters else 1.0
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * part) for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to eta_min over T_max steps."""

    def __init__(self, optimizer: Optimizer, T_max: float, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        factor = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * factor for base in self.base_lrs]


class OneCycleLR(LRScheduler):
    """One cycle (Smith and Topin, arXiv:1708.07120): from max_lr / div_factor up to max_lr, and down to the first rate / final_div_factor.
    With cycle_momentum, momentum or the first beta goes the other way."""

    def __init__(self, optimizer: Optimizer, max_lr: Union[float, list[float]], total_steps: Optional[int] = None,
                 epochs: Optional[int] = None, steps_per_epoch: Optional[int] = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
                 cycle_momentum: bool = True, base_momentum: float = 0.85, max_momentum: float = 0.95, div_factor: float = 25.0,
                 final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise UsageError("total_steps: expected it, or epochs and steps_per_epoch, got neither")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1:
            raise UsageError(f"total_steps: expected 1 or above, got {total_steps}")
        if anneal_strategy not in ("cos", "linear"):
            raise UsageError(f"anneal_strategy: expected cos or linear, got {anneal_strategy}")
        groups = optimizer.param_groups
        top = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * len(groups)
        if len(top) != len(groups):
            raise UsageError(f"max_lr: expected {len(groups)} numbers, one for each group, got {len(top)}")
        self.total_steps, self.anneal_strategy, self.max_lrs = total_steps, anneal_strategy, top
        low = [rate / div_factor for rate in top]
        end = [rate / final_div_factor for rate in low]
        rise = pct_start * total_steps - 1
        if three_phase:
            self._phases = [(rise, low, top, max_momentum, base_momentum),
                            (2 * pct_start * total_steps - 2, top, low, base_momentum, max_momentum),
                            (total_steps - 1, low, end, max_momentum, max_momentum)]
        else:
            self._phases = [(rise, low, top, max_momentum, base_momentum), (total_steps - 1, top, end, base_momentum, max_momentum)]
        self._momentum = next((key for key in ("betas", "momentum") if key in groups[0]), None) if cycle_momentum else None
        if cycle_momentum and (self._momentum is None or (self._momentum == "momentum" and not all(group["momentum"] for group in groups))):
            raise UsageError("cycle_momentum: expected an optimizer with momentum or betas, got one without: give cycle_momentum=False")
        if last_epoch == -1:
            for group, rate in zip(groups, low):
                group["lr"] = rate
        super().__init__(optimizer, last_epoch)

    def _between(self, first: float, last: float, part: float) -> float:
        if self.anneal_strategy == "linear":
            return (last - first) * part + first
        return last + (first - last) / 2 * (1 + math.cos(math.pi * part))

    def get_lr(self) -> list[float]:
        if self.last_epoch > self.total_steps:
            raise UsageError(f"step: expected at most total_steps={self.total_steps} steps, got another one")
        begin = 0.0
        for number, (end, first, last, momentum, next_momentum) in enumerate(self._phases):
            if self.last_epoch <= end or number == len(self._phases) - 1:
                break
            begin = end
        part = (self.last_epoch - begin) / (end - begin)
        if self._momentum is not None:
            now = self._between(momentum, next_momentum, part)
            for group in self.optimizer.param_groups:
                group[self._momentum] = (now, *group["betas"][1:]) if self._momentum == "betas" else now
        return [self._between(a, b, part) for a, b in zip(first, last)]


class SequentialLR(LRScheduler):
    """One schedule after the other: the next one begins, with its step 0, at each of the milestones."""

    def __init__(self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise UsageError(f"milestones: expected one fewer than schedulers, {len(schedulers) - 1}, got {len(milestones)}")
        self._schedulers, self._milestones = schedulers, milestones
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        number = bisect.bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        scheduler.last_epoch = self.last_epoch - (self._milestones[number - 1] if number else 0)
        return scheduler.get_lr()

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch, "_last_lr": self._last_lr, "_schedulers": [each.state_dict() for each in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.last_epoch, self._last_lr = state_dict["last_epoch"], state_dict["_last_lr"]
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(state)
