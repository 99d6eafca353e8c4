"""Computes the blocks of a model of PyTorch for a run: python/module/torch_block.cc calls a Skeleton.

A Skeleton is a copy of the model's modules without weights; each rank has its own. For one forward or backward of a block it binds views
of the run's memory as the block's weights, so nothing is copied but the block's output and its gradients.
"""

from __future__ import annotations

import contextlib
import copy
import threading

import torch

from ..errors import UsageError
from . import _measuring
from ._faults import Lent, absent, check_bound, disarm, made_in_forward, named
from ._graph import NAMES, Forward, Graph, Layout, Rows, parts_of, scaled
from ._place import Place
from ._rows import random_lock

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Optional, Sequence

    from ._comparison import Comparison
    from ._cut import Cut, Piece

    _Binding = tuple[str, torch.Tensor, dict[str, Any], str, Any]


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
        self.measured: dict[Any, _measuring.Measured] = {}
        self.allocated: dict[Optional[int], int] = {}
        """The bytes that PyTorch had handed out on each GPU before anything was measured there."""
        self.layouts: dict[int, tuple[int, Layout]] = {}
        """For each block: a number of rows, and the shapes and types of its outputs for so many rows."""
        self.random: set[int] = set()
        """The blocks whose forward in training draws random numbers."""

    def start_run(self) -> Run:
        return Run(self)


class Run:
    """What the Skeletons of one run share, beside what those of all runs of the model share."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.limits: dict[int, tuple[int, Callable[[], None]]] = {}
        """For each GPU the bytes that PyTorch may take of it, and the function that lifts the limit."""

    def skeleton(self) -> Skeleton:
        return Skeleton(self)

    def end(self) -> None:
        for _, lift in self.limits.values():
            lift()


class Skeleton:
    def __init__(self, run: Run) -> None:
        self.of_run, self.shared = run, run.shared
        shared = run.shared
        model = shared.cut.model
        memo: dict[int, Any] = {id(p): absent(name, p) for name, p in model.named_parameters()}
        self.cut = copy.deepcopy(shared.cut, memo)
        self.owners = owners_of(self.cut.model)
        self.trained = {name: p.requires_grad for name, p in self.cut.model.named_parameters()}
        self.counters = [self.owners[name] for name in shared.counters]
        self.recurrent = [module for module in self.cut.model.modules() if isinstance(module, torch.nn.RNNBase)]
        self.held = [held for module in self.cut.model.modules() for held in (module._parameters, module._modules)]
        self.count = sum(map(len, self.held))
        all_train = not self.cut.model.training  # as from_pretrained() leaves it; otherwise each module keeps its own mode
        self.modes = [(module, all_train or module.training) for module in self.cut.model.modules()]
        self.threads = 0
        self.batch: tuple[Any, dict[str, torch.Tensor]] = (None, {})
        self.training: Optional[bool] = None
        self.place = Place(None)

    def measure(self, index: int, rows: int, training: bool, gpu: Optional[int]) -> tuple[tuple[int, ...], str, int, int, int, int]:
        """Returns the shape and type of a block's output for so many rows and PyTorch's bytes: the peak of a forward without a graph,
        the peak of one with it, what the graph keeps, and the further peak of its backward."""
        with self.shared.lock:
            self._go_to(gpu)
            return _measuring.described(_measuring.measure(self, index, rows, training), rows, index + 1 == len(self.cut.pieces))

    def limit(self, gpu: int, size: int) -> None:
        """Makes PyTorch keep to the bytes that the plan leaves to it. Ranks that share the GPU add up."""
        with self.shared.lock:
            self._go_to(gpu)
            others, lift = self.of_run.limits.get(gpu) or (0, self.place.unlimited())
            self.of_run.limits[gpu] = (others + size, lift)
            self.place.limit(others + size)

    def _go_to(self, gpu: Optional[int]) -> None:
        if gpu == self.place.gpu:
            return
        self.place = Place(gpu)
        for module in self.cut.model.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = buffer.to(self.place.device)

    def forward(self, index: int, x: Optional[torch.Tensor], x_trained: bool, weights: list[torch.Tensor], batch: dict[str, torch.Tensor],
                all_rows: int, filled: int, number: int, counted: float, training: bool, keep: str, seed: int, threads: int,
                gpu: Optional[int], queue: int) -> Forward:
        """Runs a block for a micro-batch of `all_rows` rows, of which the first `filled` hold samples and `counted` targets. A micro-batch
        with the same `number` as the last one is the same; number 0 has no samples yet: rows of the data are computed in its place."""
        self._go_to(gpu)
        with self.place.on(queue):
            rows = Rows(all_rows, filled)
            return self._forward(index, x, x_trained, weights, batch, rows, number, counted, training, keep, seed, threads)

    def _forward(self, index: int, x: Optional[torch.Tensor], x_trained: bool, weights: list[torch.Tensor], batch: dict[str, torch.Tensor],
                 rows: Rows, number: int, counted: float, training: bool, keep: str, seed: int, threads: int) -> Forward:
        if threads != self.threads:
            self.threads = threads
            torch.set_num_threads(threads)
        piece = self.cut.pieces[index]
        last = index + 1 == len(self.cut.pieces)
        if rows.filled == 0 or (last and counted == 0):
            nothing = Graph(self.place, None, [])
            nothing.statistics = len(self.shared.statistics[index])
            return Forward((), [] if last else self.layout_of(index, rows.all), rows, last, 0, nothing)
        whole = self._batch(batch, rows, number)
        parts = [] if x is None else self._unpacked(index, x, rows)
        kept = Graph(self.place, x, weights) if keep == "movable graph" else Graph(self.place, None, [])
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
                    scopes.enter_context(torch.random.fork_rng(self.place.generators))
                    torch.manual_seed(seed)
                if keep == "nothing":
                    scopes.enter_context(torch.no_grad())
                elif keep == "movable graph":
                    scopes.enter_context(kept.hooks())
                outputs, leaves = self.run(index, parts, weights, whole, training, grad=keep != "nothing", x_trained=x_trained)
            lent.check_read_only()
            for (name, t), version in zip(whole.items(), versions):
                if t._version != version:
                    raise UsageError(f"forward: expected a batch that a forward only reads, got `{piece.name}`, which changes {name} in "
                                     "place: change a copy")
            if keep != "nothing":
                kept.lent = lent
            if keep == "movable graph":  # what is kept beside the graph itself will not be found where it is now
                lent.check_returned([*weights, *parts, *outputs, *leaves])
            elif keep == "nothing":
                leaves = []
                lent.check_returned([*weights, *parts, *outputs])
        except BaseException:
            disarm([x, *batch.values(), *weights, *parts, *leaves])
            raise
        for (held, attribute), value in changing:
            held[attribute] = value
        self._check(index, piece, outputs, rows.filled, last)
        if keep != "nothing":
            kept.outputs, kept.leaves, kept.weight, kept.rows = outputs, leaves, counted if last else None, rows
            kept.block, kept.scope = piece.name, lambda values: self.in_backward(piece, values[1:])
            kept.statistics = len(self.shared.statistics[index])
        layout = [] if last else self.layout_of(index, rows.all) or [(tuple(t.shape), t.dtype) for t in outputs]
        return Forward(outputs, layout, rows, last, counted, kept)

    def run(self, index: int, parts: list[torch.Tensor], weights: list[torch.Tensor], batch: dict[str, torch.Tensor],
             training: bool, grad: bool, x_trained: bool = True) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]:
        """Returns the outputs and, with `grad`, the leaves: first those of `parts`, then the weights."""
        piece = self.cut.pieces[index]
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
                with torch.autocast(self.place.device.type, self.shared.autocast) if self.shared.autocast else contextlib.nullcontext():
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
    def _binding(self, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> Iterator[list[_Binding]]:
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
            expected = [(scaled(shape, rows, known), dtype) for shape, dtype in layout]
            got = [(tuple(t.shape), t.dtype) for t in outputs]
            if got != expected:
                raise UsageError(f"forward: expected the outputs of the first micro-batch from `{piece.name}`, {expected}, got {got}")

    def _batch(self, batch: dict[str, torch.Tensor], rows: Rows, number: int) -> dict[str, torch.Tensor]:
        """The samples as the model takes them; the same dictionary for calls that follow each other with the same micro-batch."""
        key = (number, rows)
        if self.batch[0] != key:
            here = batch if number else {name: t.to(self.place.device) for name, t in self.shared.rows(rows.all).items()}
            self.batch = (key, self.typed({name: t[: rows.filled].clone() for name, t in here.items()}))
        return self.batch[1]

    def typed(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: t.to(self.shared.dtype) if t.dtype.is_floating_point else t for name, t in batch.items()}

    def layout_of(self, index: int, rows: int) -> Layout:
        """The shapes and types of what a block that was measured returns for so many rows; empty for another one."""
        known, layout = self.shared.layouts.get(index, (1, []))
        return [(scaled(shape, rows, known), dtype) for shape, dtype in layout]

    def _unpacked(self, index: int, x: torch.Tensor, rows: Rows) -> list[torch.Tensor]:
        layout = self.layout_of(index - 1, rows.filled)
        return parts_of(rows.beginning(x), layout) if layout else [x]


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


