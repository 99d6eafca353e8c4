"""Measures, before a run, what each kind of block returns and how much memory PyTorch takes for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..errors import UsageError
from ._graph import Layout, packed, scaled
from ._memory import bytes_of
from ._rows import random_lock

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any

    from ._cut import Piece
    from ._skeleton import Skeleton


@dataclass
class Measured:
    """What was measured of a kind of block."""

    layout: Layout
    """the shapes and types of its outputs"""
    forward: int
    """bytes: the peak of a forward without a graph"""
    recorded: int = 0
    """bytes: the peak of a forward that keeps the graph"""
    kept: int = 0
    """bytes that the graph keeps until the backward"""
    backward: int = 0
    """bytes: the peak of the backward, beside what the graph keeps"""
    is_random: bool = False
    """whether its forward in training draws random numbers"""


def measure(skeleton: Skeleton, index: int, rows: int, training: bool) -> Measured:
    """Runs a block once, unless one of its kind has been run with so many rows, and notes its layout in skeleton.shared."""
    shared, pieces = skeleton.shared, skeleton.cut.pieces
    key = (_kind(skeleton.cut.model, pieces[index], index), _layout_before(skeleton, index, rows, training), rows, training)
    if key not in shared.measured:
        place = skeleton.place
        before = shared.allocated.setdefault(place.gpu, place.allocated())
        with random_lock, torch.random.fork_rng(place.generators):
            measured = _run_once(skeleton, index, rows, training)
        workspaces = place.allocated() - before  # of PyTorch's libraries, which stay
        measured.forward, measured.recorded, measured.backward = (
            size + workspaces for size in (measured.forward, measured.recorded, measured.backward))
        place.release()
        shared.measured[key] = measured
    measured = shared.measured[key]
    shared.layouts.setdefault(index, (rows, measured.layout))
    if measured.is_random:
        shared.random.add(index)
    return measured


def _layout_before(skeleton: Skeleton, index: int, rows: int, training: bool) -> tuple[tuple[tuple[int, ...], torch.dtype], ...]:
    """The shapes and types of what the block before this one returns for so many rows."""
    if index == 0:
        return ()
    if index - 1 not in skeleton.shared.layouts:
        measure(skeleton, index - 1, rows, training)
    return tuple(skeleton.layout_of(index - 1, rows))


def _run_once(skeleton: Skeleton, index: int, rows: int, training: bool) -> Measured:
    piece, shared, device = skeleton.cut.pieces[index], skeleton.shared, skeleton.place.device
    batch = skeleton.typed({name: t.to(device) for name, t in shared.rows(rows).items()})
    parts = [torch.randn(shape, dtype=dtype, device=device) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype, device=device)
             for shape, dtype in _layout_before(skeleton, index, rows, training)]
    parameters = dict(skeleton.cut.model.named_parameters())
    weights = [torch.empty(parameters[name].shape, dtype=shared.dtype, device=device).uniform_(-0.03, 0.03) for name in piece.parameters]
    statistics = dict(skeleton.cut.model.named_buffers())
    weights += [statistics[name].to(shared.dtype) for name in shared.statistics[index]]
    weights_before = [w.clone() for w in weights[:len(piece.parameters)]]
    buffers = list(skeleton.cut.model.buffers())
    buffers_before = [b.clone() for b in buffers]
    random_before = skeleton.place.random_states()

    def forward(grad: bool) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]:
        return skeleton.run(index, parts, weights, batch, training, grad)

    def backward() -> None:
        outputs, leaves = recorded.pop()
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        grown = [t for t in outputs if t.requires_grad]
        if grown and wanted:
            with skeleton.in_backward(piece, weights):
                torch.autograd.grad(grown, wanted, [torch.ones_like(t) for t in grown], allow_unused=True)

    recorded = [forward(training)]
    for name, weight, value in zip(piece.parameters, weights, weights_before):
        if not torch.equal(weight, value):
            raise UsageError(f"forward: expected weights that a forward only reads, got `{piece.name}`, which changes {name} in place")
    weights_before.clear()
    layout = [(tuple(t.shape), t.dtype) for t in recorded[0][0]]
    is_random = training and not all(map(torch.equal, random_before, skeleton.place.random_states()))
    if training:
        backward()
    recorded.clear()
    calls = [lambda: forward(False), *([lambda: recorded.append(forward(True)), backward] if training else [])]
    sizes = bytes_of(skeleton.place, calls)
    for buffer, value in zip(buffers, buffers_before):
        buffer.copy_(value)
    if not training:
        return Measured(layout, sizes[0].peak)
    return Measured(layout, sizes[0].peak, sizes[1].peak, sizes[1].held, sizes[2].peak, is_random)


def described(measured: Measured, rows: int, last: bool) -> tuple[tuple[int, ...], str, int, int, int, int]:
    """Returns what C++ wants to know: the shape and type of the tensor in which the outputs travel, and the bytes."""
    shape, dtype = ((), "f64") if last else packed(measured.layout, rows)
    return shape, dtype, measured.forward, measured.recorded, measured.kept, measured.backward


def _kind(model: torch.nn.Module, piece: Piece, index: int) -> Any:
    """Blocks with the same key take the same memory: their modules have the same class, settings and shapes."""
    shapes = tuple((p.shape, p.requires_grad) for p in (model.get_parameter(name) for name in piece.parameters))
    try:
        module = model.get_submodule(piece.name)
    except AttributeError:
        return (index, shapes)
    settings = tuple((type(m).__name__, tuple(sorted((k, v) for k, v in vars(m).items() if isinstance(v, (bool, int, float, str)) and
                                                    "layer_idx" not in k and k != "training"))) for m in module.modules())
    return (settings, shapes)
