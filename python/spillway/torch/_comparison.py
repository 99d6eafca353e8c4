"""Compares the blocks of a model with the whole model before the first step, on weights that take no memory."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import torch

from ..errors import UsageError
from ._cut import check
from ._faults import made_in_forward, named

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Iterator

    from ._cut import Cut, Piece

_PERIOD = 65537  # a prime, so that neighboring rows of a matrix differ


@dataclass
class Comparison:
    note: str
    """A line for the log."""
    statistics: list[list[str]]
    """For each block: the names of the floating-point buffers that its forward in training changes."""
    counters: list[str]
    """The names of other buffers that a forward changes, such as batch norm's number of batches."""
    writes: set[int]
    """The blocks whose forward changes its input in place."""


def compare(cut: Cut, batch: dict[str, torch.Tensor], dtype: torch.dtype) -> Comparison:
    """Runs the blocks and the whole model on the first samples, of texts on their first tokens. Throws UsageError if their losses
    differ."""
    short = _beginning({name: t.to(dtype) if t.dtype.is_floating_point else t for name, t in batch.items()})
    with virtual_weights(cut.model, dtype) as numbers, as_before(cut.model), torch.random.fork_rng(devices=[]):
        changed, writes = _changed(cut, short, numbers)
        difference = check(cut, cut.model, short)
    count, buffers = len(cut.pieces), dict(cut.model.named_buffers())
    blocks = f"PyTorch: {count} block{'s' if count != 1 else ''}"
    note = f"{blocks}, whose loss and the whole model's differ by {difference:.1g}"
    if math.isnan(difference):
        note = f"{blocks}, not compared with the whole model, because the loss with random weights is not a number"
    elif difference > 1e-2:
        raise UsageError(f"model: expected blocks that compute the model's loss, got a loss that differs by {difference:.3g}: name the list "
                         'of layers (layers="model.layers"), or give the model as a list of modules')
    return Comparison(note, [[name for name in names if buffers[name].is_floating_point()] for names in changed],
                      [name for names in changed for name in names if not buffers[name].is_floating_point()], writes)


def _beginning(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The first 64 positions of a batch of texts; any other batch as it is."""
    shapes = {t.shape for t in batch.values()}
    if "input_ids" not in batch or len(shapes) != 1 or batch["input_ids"].dim() != 2:
        return batch
    short = {name: t[:, :64] for name, t in batch.items()}
    return short if "labels" not in short or bool((short["labels"][:, 1:] >= 0).any()) else batch


def _changed(cut: Cut, batch: dict[str, torch.Tensor], numbers: torch.Tensor) -> tuple[list[list[str]], set[int]]:
    """Runs the blocks as in training. Returns the buffers that each of them changes, and the blocks that change their input. Throws
    UsageError if a block makes or changes weights, whose values are views of `numbers`, or changes the batch."""
    cut.model.train()
    found: list[list[str]] = []
    writes: set[int] = set()
    carried: tuple[torch.Tensor, ...] = ()
    known, kept = dict(cut.model.named_parameters()), numbers.clone()
    with torch.no_grad():
        for index, piece in enumerate(cut.pieces):
            buffers = dict(cut.model.named_buffers())
            before = {name: b.clone() for name, b in buffers.items()}  # batch norm does not count its changes as versions
            given, versions, of_batch = carried, [t._version for t in carried], {name: t._version for name, t in batch.items()}
            with named("first forward", piece.name, cut.model):
                carried = piece.run(given, batch)
            buffers = dict(cut.model.named_buffers())
            found.append([name for name, b in buffers.items() if name not in before or not torch.equal(b, before[name])])
            if [t._version for t in given] != versions:
                writes.add(index)
            for name, t in batch.items():
                if t._version != of_batch[name]:
                    raise UsageError(f"forward: expected a batch that a forward only reads, got `{piece.name}`, which changes {name} in "
                                     "place: change a copy")
            _check_weights(piece, dict(cut.model.named_parameters()), known)
            if not torch.equal(numbers, kept):
                raise UsageError(f"forward: expected weights that a forward only reads, got `{piece.name}`, which changes one in place, "
                                 "through .data or numpy()")
    return found, writes


def _check_weights(piece: Piece, now: dict[str, torch.Tensor], known: dict[str, torch.Tensor]) -> None:
    for name, p in now.items():
        if name not in known:
            made_in_forward(piece.name, [name])
        if p is not known[name]:
            raise UsageError(f"forward: expected weights that a forward only reads, got `{piece.name}`, which replaces {name}")
        if p._version:
            raise UsageError(f"forward: expected weights that a forward only reads, got `{piece.name}`, which changes {name} in place")


@contextlib.contextmanager
def as_before(model: torch.nn.Module) -> Iterator[None]:
    """At its end, the model's buffers and modes are as they were."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(module._buffers, key, b, b.clone()) for module in model.modules() for key, b in module._buffers.items() if b is not None]
    try:
        yield
    finally:
        for module, trains in modes:
            module.training = trains
        with torch.no_grad():
            for held, key, buffer, value in buffers:
                held[key] = buffer.copy_(value)


@contextlib.contextmanager
def virtual_weights(model: torch.nn.Module, dtype: torch.dtype, scale: float = 0.02) -> Iterator[torch.Tensor]:
    """While it lasts, the parameters of `model` are views of a few random numbers, whatever their size: rows begin at different ones.
    Yields these numbers."""
    numbers = torch.randn(2 * _PERIOD, dtype=dtype, generator=torch.Generator().manual_seed(1)) * scale
    # Kernels for stacks of matrices, as of experts, want each matrix to be contiguous.
    largest = max((math.prod(p.shape[-2:]) for p in model.parameters() if p.dim() > 2), default=0)
    if largest > _PERIOD:
        numbers = numbers.repeat(largest // len(numbers) + 2)
    made: dict[int, torch.nn.Parameter] = {}
    places = []
    for module in model.modules():
        for attribute, p in module._parameters.items():
            if p is not None:
                made.setdefault(id(p), torch.nn.Parameter(_view(numbers, p.shape, len(made)).data, requires_grad=False))
                places.append((module, attribute, p))
    for module, attribute, p in places:
        module._parameters[attribute] = made[id(p)]
    try:
        yield numbers
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
