"""Compares the blocks of a model with the whole model before the first step, on weights that take no memory."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import torch

from ..errors import UsageError
from ._cut import check

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Iterator

    from ._cut import Cut

_PERIOD = 65537  # a prime, so that neighboring rows of a matrix differ


@dataclass
class Comparison:
    note: str
    """A line for the log."""
    statistics: list[list[str]]
    """For each block: the names of the floating-point buffers that its forward in training changes."""
    counters: list[str]
    """The names of other buffers that a forward changes, such as batch norm's number of batches."""


def compare(cut: Cut, batch: dict[str, torch.Tensor], dtype: torch.dtype) -> Comparison:
    """Runs the blocks and the whole model on the first samples, of texts on their first tokens. Throws UsageError if their losses differ."""
    short = _beginning({name: t.to(dtype) if t.dtype.is_floating_point else t for name, t in batch.items()})
    with virtual_weights(cut.model, dtype), _as_before(cut.model), torch.random.fork_rng(devices=[]):
        changed = _changed(cut, short)
        difference = check(cut, cut.model, short)
    count, buffers = len(cut.pieces), dict(cut.model.named_buffers())
    if not difference <= 1e-2:
        raise UsageError(f"model: expected blocks that compute the model's loss, got a loss that differs by {difference:.3g}: name the list "
                         'of layers (layers="model.layers"), or give the model as a list of modules')
    return Comparison(f"PyTorch: {count} block{'s' if count != 1 else ''}, whose loss and the whole model's differ by {difference:.1g}",
                      [[name for name in names if buffers[name].is_floating_point()] for names in changed],
                      [name for names in changed for name in names if not buffers[name].is_floating_point()])


def _beginning(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The first 64 positions of a batch of texts; any other batch as it is."""
    shapes = {t.shape for t in batch.values()}
    if "input_ids" not in batch or len(shapes) != 1 or batch["input_ids"].dim() != 2:
        return batch
    short = {name: t[:, :64] for name, t in batch.items()}
    return short if "labels" not in short or bool((short["labels"][:, 1:] >= 0).any()) else batch


def _changed(cut: Cut, batch: dict[str, torch.Tensor]) -> list[list[str]]:
    buffers = dict(cut.model.named_buffers())
    cut.model.train()
    found: list[list[str]] = []
    carried: tuple[torch.Tensor, ...] = ()
    with torch.no_grad():
        for piece in cut.pieces:
            before = {name: b.clone() for name, b in buffers.items()}  # batch norm does not count its changes as versions
            carried = piece.run(carried, batch)
            found.append([name for name, b in buffers.items() if not torch.equal(b, before[name])])
            for name, p in cut.model.named_parameters():
                if p._version:
                    raise UsageError(f"forward: expected weights that a forward only reads, got `{piece.name}`, which changes {name} in place")
    return found


@contextlib.contextmanager
def _as_before(model: torch.nn.Module) -> Iterator[None]:
    """At its end, the model's buffers and modes are as they were."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(b, b.clone()) for b in model.buffers()]
    try:
        yield
    finally:
        for module, trains in modes:
            module.training = trains
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


@contextlib.contextmanager
def virtual_weights(model: torch.nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """While it lasts, the parameters of `model` are views of a few random numbers, whatever their size: rows begin at different ones."""
    numbers = torch.randn(2 * _PERIOD, dtype=dtype, generator=torch.Generator().manual_seed(1)) * 0.02
    # Kernels for stacks of matrices, as of experts, want each matrix to be contiguous.
    largest = max((math.prod(p.shape[-2:]) for p in model.parameters() if p.dim() > 2), default=0)
    if largest > _PERIOD:
        numbers = numbers.repeat(largest // len(numbers) + 2)
    made: dict[int, torch.nn.Parameter] = {}
    places = []
    for module in model.modules():
        for attribute, p in module._parameters.items():
            if p is not None:
                made.setdefault(id(p), torch.nn.Parameter(_view(numbers, p.shape, len(made)), requires_grad=False))
                places.append((module, attribute, p))
    for module, attribute, p in places:
        module._parameters[attribute] = made[id(p)]
    try:
        yield
    finally:
        for module, attribute, p in places:
            module._parameters[attribute] = p


def _view(numbers: torch.Tensor, shape: torch.Size, seed: int) -> torch.Tensor:
    width = shape[-1] if shape else 1
    if width > _PERIOD:
        return numbers.repeat(width // len(numbers) + 1)[:width].expand(shape)
    # every row, or matrix of a stack, is a window of the numbers; as_strided cannot wrap around, so the windows of a longer axis repeat
    strides = [0] * len(shape)
    if shape:
        strides[-1] = 1
    window, axes = width, len(shape) - 1
    if len(shape) > 2:
        strides[-2], window, axes = width, width * shape[-2], len(shape) - 2
    room = len(numbers) - window - seed % 97
    for axis in reversed(range(axes)):
        step = max(0, min(7, room // max(1, shape[axis])))
        strides[axis] = step
        room -= step * (shape[axis] - 1)
    return torch.as_strided(numbers, tuple(shape), tuple(strides), seed % 97)
