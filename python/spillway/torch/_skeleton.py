"""Computes the blocks of a model of PyTorch for a run: python/module/torch_block.cc calls a Skeleton.

A Skeleton is a copy of the model's modules without weights; each rank has its own. For one forward or backward of a block it binds views
of the run's memory as the block's weights, so nothing is copied but the block's output and its gradients.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from dataclasses import dataclass

import torch

from ..errors import UsageError
from ._faults import Lent, absent, check_bound, disarm, made_in_forward, named
from ._memory import bytes_of
from ._rows import random_lock

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, ContextManager, Iterator, Optional, Sequence

    from ._comparison import Comparison
    from ._cut import Cut, Piece

    _Place = tuple[str, torch.Tensor, dict[str, Any], str, Any]

NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32",
         torch.uint8: "u8", torch.bool: "bool"}

_MOMENTUM = 0.1  # nn::kStatisticMomentum: a step moves a statistic by this share towards its gradient



class Shared:
    """What all Skeletons of a run share: the model, and what was measured of its blocks."""

    def __init__(self, cut: Cut, found: Comparison, rows: Callable[[int], dict[str, torch.Tensor]], dtype: torch.dtype,
                 autocast: Optional[torch.dtype]) -> None:
        self.cut = cut
        self.statistics, self.counters, self.writes = found.statistics, found.counters, found.writes
        self.rows = rows
        """rows(n) gives n rows of the training data, with which blocks are measured."""
        self.dtype = dtype
        self.autocast = autocast
        self.lock = threading.RLock()
        self.measured: dict[Any, tuple[Any, ...]] = {}
        self.layouts: dict[int, tuple[int, list[tuple[tuple[int, ...], torch.dtype]]]] = {}
        """For each block: a number of rows, and the shapes and types of its outputs for so many rows."""
        self.random: set[int] = set()
        """The blocks whose forward in training draws random numbers."""

    def skeleton(self) -> Skeleton:
        return Skeleton(self)


class Skeleton:
    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        model = shared.cut.model
        memo: dict[int, Any] = {id(p): absent(name, p) for name, p in model.named_parameters()}
        self.cut = copy.deepcopy(shared.cut, memo)
        self.owners = owners_of(self.cut.model)
        self.trained = {name: p.requires_grad for name, p in self.cut.model.named_parameters()}
        self.buffers = list(self.cut.model.buffers())
        self.counters = [self.owners[name] for name in shared.counters]
        self.recurrent = [module for module in self.cut.model.modules() if isinstance(module, torch.nn.RNNBase)]
        self.held = [held for module in self.cut.model.modules() for held in (module._parameters, module._modules)]
        self.count = sum(map(len, self.held))
        all_train = not self.cut.model.training  # as from_pretrained() leaves it; otherwise each module keeps its own mode
        self.modes = [(module, all_train or module.training) for module in self.cut.model.modules()]
        self.threads = 0
        self.batch: tuple[list[torch.Tensor], dict[str, torch.Tensor]] = ([], {})
        self.training: Optional[bool] = None

    def measure(self, index: int, rows: int, training: bool) -> tuple[tuple[int, ...], str, int, int, int, int]:
        """Runs a block of this kind once, and returns the shape and type of its output and PyTorch's bytes: the peak of a forward without a
        graph, the peak of one with it, what the graph keeps, and the further peak of its backward."""
        with self.shared.lock:
            return self._measure(index, rows, training)

    def _measure(self, index: int, rows: int, training: bool) -> tuple[tuple[int, ...], str, int, int, int, int]:
        key = (_kind(self.cut.model, self.cut.pieces[index], index), self._layout(index - 1, rows, training), rows, training)
        if key not in self.shared.measured:
            with random_lock, torch.random.fork_rng(devices=[]):
                self.shared.measured[key] = self._run_once(index, rows, training)
        layout, *sizes, is_random = self.shared.measured[key]
        self.shared.layouts.setdefault(index, (rows, layout))
        if is_random:
            self.shared.random.add(index)
        if index + 1 == len(self.cut.pieces):
            return ((), "f64", *sizes)
        return (*_packed(layout, rows), *sizes)

    def _layout(self, index: int, rows: int, training: bool) -> tuple[tuple[tuple[int, ...], torch.dtype], ...]:
        """The shapes and types of what a block returns for so many rows."""
        if index < 0:
            return ()
        if index not in self.shared.layouts:
            self._measure(index, rows, training)
        known, layout = self.shared.layouts[index]
        return tuple((_scaled(shape, rows, known), dtype) for shape, dtype in layout)

    def _run_once(self, index: int, rows: int, training: bool) -> tuple[Any, ...]:
        piece = self.cut.pieces[index]
        batch = self._typed(self.shared.rows(rows))
        parts = [torch.zeros(shape, dtype=dtype) if not dtype.is_floating_point else torch.randn(shape, dtype=dtype)
                 for shape, dtype in self._layout(index - 1, rows, training)]
        parameters = dict(self.cut.model.named_parameters())
        weights = [torch.empty(parameters[name].shape, dtype=self.shared.dtype).uniform_(-0.03, 0.03) for name in piece.parameters]
        statistics = dict(self.cut.model.named_buffers())
        weights += [statistics[name].to(self.shared.dtype) for name in self.shared.statistics[index]]
        before_weights = [w.clone() for w in weights[:len(piece.parameters)]]
        buffers = [b.clone() for b in self.buffers]
        before = torch.get_rng_state()

        def forward(grad: bool) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]:
            return self._run(piece, index, parts, weights, batch, training, grad)

        def backward() -> None:
            outputs, leaves = recorded.pop()
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            grown = [t for t in outputs if t.requires_grad]
            if grown and wanted:
                with self.in_backward(piece, weights):
                    torch.autograd.grad(grown, wanted, [torch.ones_like(t) for t in grown], allow_unused=True)

        recorded = [forward(training)]
        for name, weight, value in zip(piece.parameters, weights, before_weights):
            if not torch.equal(weight, value):
                raise UsageError(f"forward: expected weights that a forward only reads, got `{piece.name}`, which changes {name} in place")
        before_weights.clear()
        layout = [(tuple(t.shape), t.dtype) for t in recorded[0][0]]
        is_random = training and not torch.equal(before, torch.get_rng_state())
        if training:
            backward()
        recorded.clear()
        sizes = bytes_of([lambda: forward(False), *([lambda: recorded.append(forward(True)), backward] if training else [])])
        for buffer, value in zip(self.buffers, buffers):
            buffer.copy_(value)
        if not training:
            return (layout, sizes[0].peak, 0, 0, 0, False)
        return (layout, sizes[0].peak, sizes[1].peak, sizes[1].held, sizes[2].peak, is_random)

    def forward(self, index: int, x: Optional[torch.Tensor], x_trained: bool, weights: list[torch.Tensor], batch: dict[str, torch.Tensor],
                row_mask: torch.Tensor, counted: float, training: bool, keep: str, seed: int, threads: int,
                made_up: bool) -> Forward:
        if threads != self.threads:
            self.threads = threads
            torch.set_num_threads(threads)
        piece = self.cut.pieces[index]
        last = index + 1 == len(self.cut.pieces)
        rows = Rows(len(row_mask), int(row_mask.sum()))
        if not bool(row_mask[: rows.filled].all()):
            raise UsageError("forward: expected the samples of a micro-batch before its empty rows, got an empty row between")
        if rows.filled == 0 or (last and counted == 0):
            nothing = Graph(None, [])
            nothing.statistics = len(self.shared.statistics[index])
            return Forward((), [] if last else self._layout_of(index, rows.all), rows, last, 0, nothing)
        whole = self._batch(self.shared.rows(rows.all) if made_up else batch, rows)
        parts = [] if x is None else self._unpacked(index, x, rows)
        kept = None if keep == "nothing" else Graph(x, weights) if keep == "movable graph" else Graph(None, [])
        changing = self._counts() if keep == "graph" and training else []  # a forward that is repeated is counted once
        lent = Lent(piece.name, ["the input"] * (x is not None) + piece.parameters,
                    [*([] if x is None else [x]), *weights[:len(piece.parameters)]]).watch()
        versions = [t._version for t in whole.values()]
        leaves: list[torch.Tensor] = []
        try:
            with contextlib.ExitStack() as scopes:
                skeleton = getattr(piece.run, "skeleton", None)
                if skeleton is not None:
                    skeleton.draws = bool(self.shared.random)
                if self.shared.random:  # a block that draws none itself may set the generator back
                    scopes.enter_context(random_lock)
                if index in self.shared.random and training:
                    scopes.enter_context(torch.random.fork_rng(devices=[]))
                    torch.manual_seed(seed)
                if keep == "nothing":
                    scopes.enter_context(torch.no_grad())
                elif keep == "movable graph":
                    scopes.enter_context(kept.hooks())
                outputs, leaves = self._run(piece, index, parts, weights, whole, training, grad=keep != "nothing", x_trained=x_trained)
            lent.check_read_only()
            for (name, t), version in zip(whole.items(), versions):
                if t._version != version:
                    raise UsageError(f"forward: expected a batch that a forward only reads, got `{piece.name}`, which changes {name} in "
                                     "place: change a copy")
            if kept is not None:
                kept.lent = lent
            if keep == "movable graph":  # what is kept beside the graph itself will not be found where it is now
                lent.check_returned([*weights, *parts, *outputs, *leaves])
            elif keep == "nothing":
                leaves = []
                lent.check_returned([*weights, *parts, *outputs])
        except BaseException:
            disarm([x, row_mask, *batch.values(), *weights, *parts, *leaves])
            raise
        for (held, attribute), value in changing:
            held[attribute] = value
        self._check(index, piece, outputs, rows.filled, last)
        if kept is not None:
            kept.outputs, kept.leaves, kept.weight, kept.rows = outputs, leaves, counted if last else None, rows
            kept.block, kept.scope = piece.name, lambda values: self.in_backward(piece, values[1:])
            kept.statistics = len(self.shared.statistics[index])
        layout = [] if last else self._layout_of(index, rows.all) or [(tuple(t.shape), t.dtype) for t in outputs]
        return Forward(outputs, layout, rows, last, counted, kept)

    def _run(self, piece: Piece, index: int, parts: list[torch.Tensor], weights: list[torch.Tensor], batch: dict[str, torch.Tensor],
             training: bool, grad: bool, x_trained: bool = True) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]:
        """Returns the outputs and, with `grad`, the leaves: first those of `parts`, then the weights."""
        if training is not self.training:
            for module, trains in self.modes:
                module.training = training and trains
            self.training = training
        carried = [t.detach().requires_grad_(grad and x_trained and t.dtype.is_floating_point) for t in parts]
        # a block that changes its input in place gets one that is not the run's, and that the gradient does not end at
        handed = [t.clone() for t in carried] if index in self.shared.writes else carried
        names = [*piece.parameters, *self.shared.statistics[index]]
        count = len(piece.parameters)
        bound: list[torch.Tensor] = [torch.nn.Parameter(w, grad and self.trained[name]) for name, w in zip(piece.parameters, weights)]
        bound += [w.clone() for w in weights[count:]]  # statistics, which the forward changes
        try:
            with named("forward", piece.name, self.cut.model), self._binding(names, bound) as places:
                with torch.autocast("cpu", self.shared.autocast) if self.shared.autocast else contextlib.nullcontext():
                    with torch.enable_grad() if grad else torch.no_grad():
                        outputs = piece.run(tuple(handed), batch)
                if sum(map(len, self.held)) != self.count:
                    made_in_forward(piece.name, [name for name, _ in self.cut.model.named_parameters() if name not in self.trained])
                check_bound(piece.name, places, bound, weights, count)
        except BaseException:
            disarm([*carried, *bound])
            raise
        if not isinstance(outputs, tuple) or not outputs or not all(torch.is_tensor(t) for t in outputs):
            raise UsageError(f"forward: expected a tensor or a tuple of tensors from `{piece.name}`, got {type(outputs).__name__}")
        for t in outputs:
            if t.dtype not in NAMES or t.layout != torch.strided:
                raise UsageError(f"forward: expected dense tensors of real numbers from `{piece.name}`, got {t.layout} of {t.dtype}")
        return outputs, [*carried, *bound]

    def _counts(self) -> list[tuple[tuple[dict[str, Any], str], torch.Tensor]]:
        return [((held, attribute), held[attribute].clone()) for places in self.counters for held, attribute in places]

    @contextlib.contextmanager
    def _binding(self, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> Iterator[list[_Place]]:
        """While it lasts, modules hold these tensors as their weights. Yields where they do."""
        places = [(name, t, held, attribute, held[attribute]) for name, t in zip(names, tensors) for held, attribute in self.owners[name]]
        try:
            for _, t, held, attribute, _ in places:
                held[attribute] = t
            for module in self.recurrent:
                module._flat_weights = [getattr(module, name, None) for name in module._flat_weights_names]
            yield places
        finally:
            for _, _, held, attribute, before in places:
                held[attribute] = before
            for module in self.recurrent:
                module._flat_weights = []

    @contextlib.contextmanager
    def in_backward(self, piece: Piece, weights: Sequence[Optional[torch.Tensor]]) -> Iterator[None]:
        """While it lasts, modules hold their weights for what is computed again in backward (torch.utils.checkpoint)."""
        given = [(name, torch.nn.Parameter(w, self.trained[name])) for name, w in zip(piece.parameters, weights) if w is not None]
        try:
            with named("backward", piece.name, self.cut.model), self._binding([name for name, _ in given], [p for _, p in given]):
                yield
        except BaseException:
            disarm([p for _, p in given])
            raise

    def _check(self, index: int, piece: Piece, outputs: tuple[torch.Tensor, ...], rows: int, last: bool) -> None:
        if last:
            if len(outputs) != 1 or outputs[0].numel() != 1 or not outputs[0].dtype.is_floating_point:
                raise UsageError(f"forward: expected one number, the mean loss, from the last block `{piece.name}`, got "
                                 f"{[tuple(t.shape) for t in outputs]}")
            return
        if index in self.shared.layouts:
            known, layout = self.shared.layouts[index]
            expected = [(_scaled(shape, rows, known), dtype) for shape, dtype in layout]
            got = [(tuple(t.shape), t.dtype) for t in outputs]
            if got != expected:
                raise UsageError(f"forward: expected the outputs of the first micro-batch from `{piece.name}`, {expected}, got {got}")

    def _batch(self, batch: dict[str, torch.Tensor], rows: Rows) -> dict[str, torch.Tensor]:
        """The samples as the model takes them; the same dictionary for calls that follow each other with equal inputs."""
        now = [t[: rows.filled] for t in batch.values()]
        known, typed = self.batch
        if len(known) != len(now) or not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(known, now)):
            typed = self._typed({name: t.clone() for name, t in zip(batch, now)})
            self.batch = ([t.clone() for t in now], typed)
        return typed

    def _typed(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: t.to(self.shared.dtype) if t.dtype.is_floating_point else t for name, t in batch.items()}

    def _layout_of(self, index: int, rows: int) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """The shapes and types of what a block that was measured returns; empty for another one."""
        known, layout = self.shared.layouts.get(index, (1, []))
        return [(_scaled(shape, rows, known), dtype) for shape, dtype in layout]

    def _unpacked(self, index: int, x: torch.Tensor, rows: Rows) -> list[torch.Tensor]:
        layout = self._layout_of(index - 1, rows.filled)
        return parts_of(rows.beginning(x), layout) if layout else [x]


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

    def __init__(self, outputs: tuple[torch.Tensor, ...], layout: list[tuple[tuple[int, ...], torch.dtype]], rows: Rows, last: bool,
                 counted: float, graph: Optional[Graph]) -> None:
        self.outputs, self.rows, self.last, self.counted = outputs, rows, last, counted
        self.graph = graph if graph is not None else Graph(None, [])
        self.shape, self.dtype = ((), "f64") if last else _packed(layout, rows.all)

    def write(self, y: torch.Tensor) -> None:
        with torch.no_grad():
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

    def __init__(self, x: Optional[torch.Tensor], weights: list[torch.Tensor]) -> None:
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
        return torch.empty(0, dtype=dtype).set_(self._now[slot].untyped_storage(), offset, size, stride)

    def backward(self, values: list[Optional[torch.Tensor]], dy: Any, targets: list[Optional[torch.Tensor]]) -> None:
        """Writes the gradients of the block's input and weights whose `targets` are given, from the gradient `dy` of its output, for the
        last block the gradient of its loss. `values` are the input and the weights where they are now."""
        here = [t for t in values if t is not None] + ([dy] if torch.is_tensor(dy) else [])
        names = [f"weight {i}" if i else "the input" for i, t in enumerate(values) if t is not None] + ["the gradient of the output"]
        lent = Lent(self.block, names, here)
        self._now = values
        try:
            with self.scope(values):
                self._backward(values, dy, targets)
            self._now = []
            if not self._left:
                self.outputs, self.leaves = (), []
            lent.check_returned([])
            if self.lent is not None and not self._left:
                self.lent.check_returned([])
        except BaseException:
            disarm([*here, *targets, *self.leaves, *(self.lent.tensors if self.lent is not None else [])])
            raise

    def _backward(self, values: list[Optional[torch.Tensor]], dy: Any, targets: list[Optional[torch.Tensor]]) -> None:
        count = len(self.leaves) - (len(targets) - 1)
        shapes = [(tuple(leaf.shape), leaf.dtype) for leaf in self.leaves[:count]]
        places = ([None] * count if targets[0] is None else parts_of(self.rows.beginning(targets[0]), shapes)) + targets[1:] if self.leaves else []
        grown = [t for t in self.outputs if t.requires_grad]
        gradients = [torch.full_like(grown[0], dy * self.weight)] if self.weight is not None and grown else []
        if self.weight is None and self.outputs:
            all_parts = parts_of(self.rows.beginning(dy), [(tuple(t.shape), t.dtype) for t in self.outputs])
            gradients = [g.detach() for t, g in zip(self.outputs, all_parts) if t.requires_grad]
        wanted = [i for i, place in enumerate(places) if place is not None and self.leaves[i].requires_grad]
        if self._left is None:
            self._left = {i for i, leaf in enumerate(self.leaves) if leaf.requires_grad}
        self._left -= set(wanted)
        found: dict[int, Optional[torch.Tensor]] = {}
        if grown and wanted:
            results = torch.autograd.grad(grown, [self.leaves[i] for i in wanted], gradients, retain_graph=bool(self._left), allow_unused=True)
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


def owners_of(model: torch.nn.Module) -> dict[str, list[tuple[dict[str, Any], str]]]:
    """For each parameter and buffer, under its first name, the dictionaries of modules that hold it and its keys in them."""
    names = {id(t): name for name, t in [*model.named_parameters(), *model.named_buffers()]}
    owners: dict[str, list[tuple[dict[str, Any], str]]] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for attribute, t in held.items():
                if t is not None:
                    owners.setdefault(names[id(t)], []).append((held, attribute))
    return owners


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


def _scaled(shape: tuple[int, ...], rows: int, known: int) -> tuple[int, ...]:
    """The shape for `rows` rows of a tensor that has this shape for `known` rows."""
    if rows == known or not shape or shape[0] % known:
        return shape
    return (shape[0] // known * rows, *shape[1:])


def _bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    return size


def _packed(layout: list[tuple[tuple[int, ...], torch.dtype]], rows: int) -> tuple[tuple[int, ...], str]:
    """The shape and type of the tensor in which tensors of these shapes and types travel."""
    if len(layout) == 1 and layout[0][1].is_floating_point:
        return layout[0][0], NAMES[layout[0][1]]
    total = sum(_bytes(shape, dtype) for shape, dtype in layout)
    if total % rows:
        raise UsageError(f"forward: expected outputs whose first axis is one of rows, got {layout} for {rows} rows")
    return (rows, total // rows), "u8"


def parts_of(packed: torch.Tensor, layout: list[tuple[tuple[int, ...], torch.dtype]]) -> list[torch.Tensor]:
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
