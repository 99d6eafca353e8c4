"""Weights that take no memory, to run a whole model once."""

from __future__ import annotations

import contextlib

import torch

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Iterator

_PERIOD = 65537  # a prime, so that neighboring rows of a matrix differ


@contextlib.contextmanager
def virtual_weights(model: torch.nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """While it lasts, the parameters of `model` are views of a few random numbers, whatever their size: rows begin at different ones."""
    numbers = torch.randn(2 * _PERIOD, dtype=dtype, generator=torch.Generator().manual_seed(1)) * 0.02
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
    # every row is a window of the numbers; as_strided cannot wrap around, so the windows of a longer axis repeat
    strides = [0] * len(shape)
    if shape:
        strides[-1] = 1
    room = 2 * _PERIOD - width - seed % 97
    for axis in range(len(shape) - 2, -1, -1):
        step = max(0, min(7, room // max(1, shape[axis])))
        strides[axis] = step
        room -= step * (shape[axis] - 1)
    return torch.as_strided(numbers, tuple(shape), tuple(strides), seed % 97)
