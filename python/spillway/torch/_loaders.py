"""The orders of DataLoaders, and iterables, whose rows are counted from the beginning."""

from __future__ import annotations

import bisect
import contextlib
import copy
import itertools
import warnings
from array import array
from collections import OrderedDict, deque
from collections.abc import Mapping

import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from . import _rows

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Optional, Sequence

    from ._rows import Collate


class Batches:
    """A DataLoader over a map-style Dataset. The order of its sampler is drawn beforehand, so that each batch can be made by itself."""

    ordered, streamed = True, False

    def __init__(self, loader: DataLoader, argument: str) -> None:
        from ..errors import UsageError

        self._loader, self._argument, self.kept = loader, argument, 0
        self.batch_size = getattr(loader.batch_sampler, "batch_size", None)
        sampler = self._sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
        ranks = getattr(sampler, "num_replicas", 1)
        if ranks not in (None, 1):
            raise UsageError(f"{argument}: expected a loader of all samples, got {type(sampler).__name__} for one of {ranks} ranks: leave "
                             "it out, because each rank is given its share here")
        owners = [getattr(owner, "generator", None) for owner in (loader, sampler, loader.batch_sampler)]
        self._generators = list({id(one): one for one in owners if isinstance(one, torch.Generator)}.values())
        self._start = [generator.get_state() for generator in self._generators]
        self._made: OrderedDict[tuple[int, int], dict[str, Any]] = OrderedDict()
        self._forget_orders()
        order, chance = _rows.tried(lambda: list(self._order(0)[0]), 0)
        self._forget_orders()
        # StatefulDataLoader(shuffle=True) without a generator gives its sampler one with a seed by chance.
        chance |= type(sampler).__module__.startswith("torchdata.") and hasattr(sampler, "generator") and loader.generator is None
        if chance or list(self._order(0)[0]) != order:
            raise UsageError(f"{argument}: expected a loader that gives the same order after a restart, got {type(sampler).__name__} "
                             "without a seed: write DataLoader(..., shuffle=True, generator=torch.Generator().manual_seed(0)), or give the "
                             "Dataset itself, which is shuffled here by seed=")
        self.length = len(order)

    def name(self, at: int) -> str:
        epoch, batch, begin = self._place(at)
        return f"{self._argument} (epoch {epoch}, batch {batch}, row {at % self.length - begin})"

    def seed(self, row: int) -> int:
        return row - row % self.length + self._place(row)[2]

    def forget(self) -> None:
        self._made.clear()

    def read(self, at: int) -> Any:
        epoch, batch, begin = self._place(at)
        rows = self._made.get((epoch, batch))
        if rows is None:
            rows = self._made[epoch, batch] = self._make(epoch, batch, begin, self.name(at))
            while len(self._made) > max(2, -(-self.kept // (self.batch_size or 1))):
                self._made.popitem(last=False)
        self._made.move_to_end((epoch, batch))
        return _rows.row_of(rows, at % self.length - begin)

    def _make(self, epoch: int, batch: int, begin: int, name: str) -> dict[str, Any]:
        samples, ends = self._order(epoch)
        indices, dataset = list(samples[begin : ends[batch]]), self._loader.dataset
        fetch = getattr(dataset, "__getitems__", None)
        return _rows.collated(self._loader.collate_fn, fetch(indices) if fetch else [dataset[index] for index in indices], name)

    def _place(self, at: int) -> tuple[int, int, int]:
        """Returns the epoch of a row of the run, its batch in the epoch, and the row of the epoch at which the batch begins."""
        epoch, row = divmod(at, self.length)
        ends = self._order(epoch)[1]
        batch = bisect.bisect_right(ends, row)
        return epoch, batch, ends[batch - 1] if batch else 0

    def _forget_orders(self) -> None:
        self._orders: dict[int, tuple[Sequence[Any], Sequence[int]]] = {}  # those of two epochs
        self._next, self._states = 0, self._start  # the epoch whose order is drawn next, and the generators' states before it

    def _order(self, epoch: int) -> tuple[Sequence[Any], Sequence[int]]:
        """Returns the samples of an epoch in order, and the number of rows up to the end of each batch."""
        from ..errors import DataError

        if epoch not in self._orders and epoch < self._next:
            self._forget_orders()
        while epoch not in self._orders:
            if len(self._orders) == 2:
                del self._orders[min(self._orders)]
            order = self._orders[self._next] = self._draw(self._next)
            self._next += 1
            if len(order[0]) != getattr(self, "length", len(order[0])):
                raise DataError(f"[data] {self._argument}: expected {self.length} rows in each epoch as in the first, got {len(order[0])} "
                                f"in epoch {self._next - 1}")
        return self._orders[epoch]

    def _draw(self, epoch: int) -> tuple[Sequence[Any], Sequence[int]]:
        loader, batches = self._loader, self._loader.batch_sampler
        for one in (self._sampler, batches):
            if hasattr(one, "set_epoch"):
                one.set_epoch(epoch)
        if type(batches) is BatchSampler and type(batches.sampler) is SequentialSampler:  # without a list as long as the data
            rows, size = len(batches.sampler), batches.batch_size
            return range(rows - rows % size if batches.drop_last else rows), range(size, rows + size, size)
        users = [generator.get_state() for generator in self._generators]
        for generator, state in zip(self._generators, self._states):
            generator.set_state(state)
        try:
            drawing = iter(batches)
            # A DataLoader's iterator draws a seed for its workers here. Persistent workers keep the iterator of the first epoch.
            if loader.generator is not None and not (epoch > 0 and loader.persistent_workers):
                torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            lists = list(drawing)
            self._states = [generator.get_state() for generator in self._generators]
        finally:
            for generator, state in zip(self._generators, users):
                generator.set_state(state)
        flat = [index for one in lists for index in one]
        ends = array("q", itertools.accumulate(map(len, lists)))
        return array("q", flat) if all(type(index) is int for index in flat) else flat, ends


class Stream:
    """An iterable that can be iterated again, of rows or of batches. Rows are counted from its beginning; epochs follow each other."""

    ordered = streamed = True

    def __init__(self, data: Any, argument: str, collate: Optional[Collate]) -> None:
        from ..errors import UsageError

        self._data, self._argument, self._collate, self.kept = data, argument, collate, 16
        if hasattr(data, "__next__"):
            raise UsageError(f"{argument}: expected data that can be read again, so that a run can resume, got {type(data).__name__}, "
                             f"which can be read once: write {argument}=list(...), a class whose __iter__ begins anew, or "
                             "datasets.Dataset.from_generator(...)")
        self._loads = isinstance(data, DataLoader)
        self._stateful = self._loads and hasattr(data, "state_dict") and hasattr(data, "load_state_dict")
        self._dataset = data.dataset if self._loads else data
        self.batch_size = data.batch_size if self._loads else None
        if getattr(self._dataset, "_distributed", None) is not None:  # set by datasets.distributed.split_dataset_by_node
            raise UsageError(f"{argument}: expected all of the data, got the part of one rank: leave out split_dataset_by_node, because "
                             "each rank is given its share here")
        self.length: Optional[int] = None
        self.draws = False
        self._resumed: list[Mapping[str, Any]] = []
        self._states: deque[dict[str, Any]] = deque(maxlen=32)
        self.forget()

    def name(self, at: int) -> str:
        return f"{self._argument} (row {at})"

    def seed(self, row: int) -> int:
        return 0  # the items are seeded in _touch()

    def forget(self) -> None:
        self._window: deque[tuple[int, dict[str, Any], bool]] = deque()  # the first row of each item, the item, and whether it is a batch
        self._iterator: Optional[Iterator[Any]] = None
        self._end = self._epoch = self._items = 0  # rows before the next item, its epoch, and items before it in the epoch

    def read(self, at: int) -> Any:
        if at < (self._window[0][0] if self._window else self._end):
            self.forget()
        between = [state for state in self._resumed if self._end < state["row"] <= at]
        if between:
            self._resume(max(between, key=lambda state: state["row"]))
        while at >= self._end:
            self._advance()
        begin, item, batched = next(one for one in reversed(self._window) if one[0] <= at)
        return _rows.row_of(item, at - begin) if batched else item

    def state_dict(self, row: int) -> Optional[dict[str, Any]]:
        return next((state for state in reversed(self._states) if state["row"] <= row), None)

    def load_state_dicts(self, states: Sequence[Mapping[str, Any]]) -> None:
        """A row that is farther on is then reached from the last of these states before it."""
        self._resumed = list(states) if self._stateful else []

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Goes on from a loader's state if the rows there are those that were there."""
        self.forget()
        self._data.load_state_dict(copy.deepcopy(state["loader"]))
        self._end, self._epoch, self._items = state["row"], state["epoch"], state["items"]
        with _rows.seeded(self._epoch):
            self._iterator = iter(self._data)
        self._advance()
        if self._end == state["row"] or self._first() != state["first"]:
            warnings.warn(f"{self._argument}: the loader's state_dict() does not lead back to the row where it was taken; the rows are "
                          "counted from the beginning instead", stacklevel=2)
            self._resumed = []
            self.forget()

    def _advance(self) -> None:
        from ..errors import DataError

        if self._iterator is None:
            for one in {id(one): one for one in (self._data, self._dataset)}.values():
                if hasattr(one, "set_epoch"):
                    one.set_epoch(self._epoch)
            self._touch(lambda: setattr(self, "_iterator", iter(self._data)), self._epoch)
        state = None
        if self._stateful and self._items > 0 and self._items % 8 == 0:
            state = {"row": self._end, "epoch": self._epoch, "items": self._items, "loader": copy.deepcopy(self._data.state_dict())}
        item = self._touch(lambda: next(self._iterator, Stream), self._end)
        if item is Stream:
            if self._items == 0:
                raise DataError(f"[data] {self._argument}: expected at least one row in each epoch, got none in epoch {self._epoch}: let "
                                "the data begin anew at each iter()")
            self._iterator, self._epoch, self._items = None, self._epoch + 1, 0
            return
        self._items += 1
        rows, batched = 1, True
        if self._collate is not None:
            item = _rows.collated(self._collate, [item], self.name(self._end))
        else:
            ids = item.get("input_ids") if isinstance(item, Mapping) else None
            batched = self._loads if ids is None else _rows.axes(ids) > 1
            item = _rows.batch_of(item, self.name(self._end)) if batched else _rows.named(item, self.name(self._end))
            rows = _rows.rows_in(item, self.name(self._end)) if batched else 1
        if self.length is None and self._items == 1 and self._epoch == 0:
            self.length = self._known_length(batched)
        self._window.append((self._end, item, batched))
        self._end += rows
        while len(self._window) > 2 and self._end - self._window[1][0] >= self.kept:
            self._window.popleft()
        if state is not None:
            self._states.append({**state, "first": self._first()})

    def _first(self) -> int:
        begin, item, batched = self._window[-1]
        return _rows.checksum(item, batched, self.name(begin))

    def _touch(self, act: Callable[[], Any], seed: int) -> Any:
        """Lets the data act, with seeded generators if it draws random numbers."""
        if not self.draws and self._epoch == 0 and self._items == 0:
            result, self.draws = _rows.tried(act, seed)
            return result
        with _rows.seeded(seed) if self.draws else contextlib.nullcontext():
            return act()

    def _known_length(self, batched: bool) -> Optional[int]:
        """Returns the number of rows of an epoch if the data tells it."""
        if self._loads and (batched != (self._data.batch_size is not None) or not plain_iteration(self._data)):
            return None
        if not self._loads and batched and self._collate is None:
            return None
        try:
            rows = len(self._dataset)
        except (TypeError, NotImplementedError, AttributeError):
            return None
        return rows - rows % self._data.batch_size if self._loads and batched and self._data.drop_last else rows


def plain_iteration(loader: DataLoader) -> bool:
    """Whether the loader's batches are those of its batch_sampler, and not changed by a class derived from DataLoader."""
    return type(loader).__iter__ is DataLoader.__iter__ or type(loader).__module__.startswith("torchdata.stateful_dataloader")
