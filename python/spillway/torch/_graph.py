"""What a block hands on: the tuple of tensors in which it travels, and the graph that PyTorch keeps for its backward."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch

from ..errors import UsageError
from ._faults import Lent, disarm

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, ContextManager, Optional

    from ._place import Place

NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32",
         torch.uint8: "u8", torch.bool: "bool"}

_MOMENTUM = 0.1  # nn::kStatisticMomentum: a step moves a statistic by this share towards its gradient

Layout = list[tuple[tuple[int, ...], torch.dtype]]
"""The shapes and types of the tensors that a block returns."""


@dataclass
class Rows:
    """The rows of a micro-batch, of which the last ones may hold no sample."""

    all: int
    filled: int

    def beginning(self, t: torch.Tensor) -> torch.Tensor:
        """The part of a tensor that belongs to rows with samples."""
        return t if self.filled == self.all or t.dim() == 0 or len(t) % self.all else t[: len(t) // self.all * self.filled]


class Forward:
    """The result of a block's forward: C++ makes memory of this shape and type, into which write() puts it."""

    def __init__(self, outputs: tuple[torch.Tensor, ...], layout: Layout, rows: Rows, last: bool, counted: float, graph: Graph) -> None:
        self.outputs, self.rows, self.last, self.counted = outputs, rows, last, counted
        self.graph = graph
        self.shape, self.dtype = ((), "f64") if last else packed(layout, rows.all)

    def write(self, y: torch.Tensor, queue: int) -> None:
        with self.graph.place.on(queue), torch.no_grad():
            if self.rows.filled < self.rows.all or not self.outputs:
                y.zero_()
            if not self.outputs:
                return
            if self.last:
                y.copy_(self.outputs[0].detach().to(torch.float64).reshape(()) * self.counted)
                return
            for part, value in zip(parts_of(self.rows.beginning(y), [(tuple(t.shape), t.dtype) for t in self.outputs]), self.outputs):
                part.copy_(value)
        self.outputs = ()


class Graph:
    """The graph that PyTorch keeps from a block's forward to its backward.

    The run may move a block's weights and input in the meantime. `x` and `weights` are their places in the forward: what the graph saves of
    them is found again in their places in the backward.
    """

    def __init__(self, place: Place, x: Optional[torch.Tensor], weights: list[torch.Tensor]) -> None:
        self.place = place
        self.outputs: tuple[torch.Tensor, ...] = ()
        self.leaves: list[torch.Tensor] = []
        self.weight: Optional[float] = None
        self.rows = Rows(1, 1)
        self.statistics = 0
        """How many of the leaves, at their end, are statistics that the forward changed."""
        self.lent: Optional[Lent] = None
        """What the graph refers to until its backward."""
        self.block = ""
        self.scope: Callable[[list[Optional[torch.Tensor]]], ContextManager[None]] = contextlib.nullcontext
        self._slots = {t.untyped_storage().data_ptr(): slot for slot, t in enumerate([x, *weights]) if t is not None and t.numel() > 0}
        self._now: list[Optional[torch.Tensor]] = []
        self._left: Optional[set[int]] = None

    def hooks(self) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, t: torch.Tensor) -> Any:
        slot = self._slots.get(t.untyped_storage().data_ptr()) if t.layout == torch.strided else None
        return t.detach() if slot is None else (slot, t.dtype, tuple(t.size()), t.stride(), t.storage_offset())

    def _unpack(self, saved: Any) -> torch.Tensor:
        if torch.is_tensor(saved):
            return saved
        slot, dtype, size, stride, offset = saved
        storage = self._now[slot].untyped_storage()
        return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)

    def backward(self, values: list[Optional[torch.Tensor]], dy: torch.Tensor, factor: float, targets: list[Optional[torch.Tensor]],
                 queue: int) -> None:
        """Writes the gradients of the block's input and weights whose `targets` are given, from the gradient `dy` of its output. For the
        last block dy is that of its loss, which `factor` multiplies. `values` are the input and the weights where they are now."""
        here = [*(t for t in values if t is not None), dy]
        names = [f"weight {i}" if i else "the input" for i, t in enumerate(values) if t is not None] + ["the gradient of the output"]
        lent = Lent(self.block, names, here)
        self._now = values
        try:
            with self.place.on(queue), self.scope(values):
                self._backward(values, dy, factor, targets)
            self._now = []
            if not self._left:
                self.outputs, self.leaves = (), []
            lent.check_returned([])
            if self.lent is not None and not self._left:
                self.lent.check_returned([])
        except BaseException:
            disarm([*here, *targets, *self.leaves, *(self.lent.tensors if self.lent is not None else [])])
            raise

    def _backward(self, values: list[Optional[torch.Tensor]], dy: torch.Tensor, factor: float,
                  targets: list[Optional[torch.Tensor]]) -> None:
        count = len(self.leaves) - (len(targets) - 1)
        shapes = [(tuple(leaf.shape), leaf.dtype) for leaf in self.leaves[:count]]
        places: list[Optional[torch.Tensor]] = []
        if self.leaves:
            places = [*([None] * count if targets[0] is None else parts_of(self.rows.beginning(targets[0]), shapes)), *targets[1:]]
        grown = [t for t in self.outputs if t.requires_grad]
        gradients = [(dy * factor * self.weight).to(grown[0].dtype).reshape(grown[0].shape)] if self.weight is not None and grown else []
        if self.weight is None and self.outputs:
            all_parts = parts_of(self.rows.beginning(dy), [(tuple(t.shape), t.dtype) for t in self.outputs])
            gradients = [g.detach() for t, g in zip(self.outputs, all_parts) if t.requires_grad]
        wanted = [i for i, place in enumerate(places) if place is not None and self.leaves[i].requires_grad]
        if self._left is None:
            self._left = {i for i, leaf in enumerate(self.leaves) if leaf.requires_grad}
        self._left -= set(wanted)
        found: dict[int, Optional[torch.Tensor]] = {}
        if grown and wanted:
            results = torch.autograd.grad(grown, [self.leaves[i] for i in wanted], gradients, retain_graph=bool(self._left),
                                          allow_unused=True)
            found = dict(zip(wanted, results))
        with torch.no_grad():
            if targets[0] is not None and self.rows.filled < self.rows.all:
                targets[0].zero_()
            for i, target in enumerate(targets if not self.leaves else []):  # no row holds a sample
                if target is not None:
                    target.copy_(values[i]) if i >= len(targets) - self.statistics else target.zero_()
            for i, place in enumerate(places):
                if place is None:
                    continue
                if i >= len(self.leaves) - self.statistics:
                    before = values[i - count + 1]
                    place.copy_(before + (self.leaves[i] - before) / _MOMENTUM)
                    continue
                gradient = found.get(i)
                place.zero_() if gradient is None else place.copy_(gradient.to_dense() if gradient.is_sparse else gradient)


def scaled(shape: tuple[int, ...], rows: int, known: int) -> tuple[int, ...]:
    """The shape for `rows` rows of a tensor that has this shape for `known` rows."""
    if rows == known or not shape or shape[0] % known:
        return shape
    return (shape[0] // known * rows, *shape[1:])


def _bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    return size


def packed(layout: Layout, rows: int) -> tuple[tuple[int, ...], str]:
    """The shape and type of the tensor in which tensors of these shapes and types travel."""
    if len(layout) == 1 and layout[0][1].is_floating_point:
        return layout[0][0], NAMES[layout[0][1]]
    total = sum(_bytes(shape, dtype) for shape, dtype in layout)
    if total % rows:
        raise UsageError(f"forward: expected outputs whose first axis is one of rows, got {layout} for {rows} rows")
    return (rows, total // rows), "u8"


def parts_of(packed: torch.Tensor, layout: Layout) -> list[torch.Tensor]:
    """Views of the tensors that travel in `packed`; those of wider elements lie first, so that all are aligned."""
    if len(layout) == 1 and layout[0][1].is_floating_point:
        return [packed]
    flat = packed.reshape(-1)
    parts: dict[int, torch.Tensor] = {}
    begin = 0
    for i in sorted(range(len(layout)), key=lambda i: -layout[i][1].itemsize):
        shape, dtype = layout[i]
        end = begin + _bytes(shape, dtype)
        parts[i] = flat[begin:end].view(dtype).reshape(shape)
        begin = end
    return [parts[i] for i in range(len(layout))]
