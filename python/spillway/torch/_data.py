"""Turns what PyTorch users have as data into numbered samples for the engine: dictionaries of tensors, of the same shapes in each sample,
and equal whenever an index is read again."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import pickle
import threading
from collections.abc import Mapping

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from . import _rows
from ._loaders import Batches, Stream, plain_iteration

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Optional, Protocol, Sequence

    from ._rows import Collate

    class _Source(Protocol):
        """Where samples come from. `at` is an index, and in ordered data a row of the run. Row `row` is made with random numbers of
        seed(row). forget() drops the batches that are kept."""

        ordered: bool
        streamed: bool
        batch_size: Optional[int]
        length: Optional[int]
        kept: int

        def read(self, at: int) -> Any: ...
        def seed(self, row: int) -> int: ...
        def name(self, at: int) -> str: ...
        def forget(self) -> None: ...


def samples_of(data: Any, argument: str, *, collate: Optional[Collate] = None, sequence_length: Optional[int] = None) -> Samples:
    """Returns the samples of `data`, which may be a map-style Dataset, a datasets.Dataset, a list of dictionaries, a dictionary of arrays,
    a DataLoader, or an iterable that can be read several times. `argument` is its name for messages.

    collate: called with a list of rows, as by a DataLoader; required if rows are not dictionaries. sequence_length: the length to which
    rows of tokens are padded on the right; required if their lengths differ.
    """
    from ..errors import UsageError, UsageTypeError

    if collate is not None and not callable(collate):
        raise UsageTypeError(f"collate: expected a function from a list of rows to a dictionary of tensors, got {type(collate).__name__}")
    if isinstance(data, DataLoader):
        if collate is not None:
            raise UsageError(f"collate: expected none beside a DataLoader, got {type(collate).__name__}: write DataLoader(..., "
                             "collate_fn=...)")
        collate = data.collate_fn
        if isinstance(data.dataset, IterableDataset) or data.batch_sampler is None or not plain_iteration(data):
            source: _Source = Stream(data, argument, None)
        else:
            source = Batches(data, argument)
    elif isinstance(data, Mapping):
        _refuse_sets(data, argument)
        source = _Indexed(_Columns(data, argument), argument, collate)
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (IterableDataset, type)):
        if isinstance(data, (str, bytes)) or hasattr(data, "iloc") or hasattr(data, "iter_rows"):
            raise UsageTypeError(f"{argument}: expected a Dataset, a DataLoader, a list of dictionaries or a dictionary of arrays, got "
                                 f"{type(data).__name__}: datasets.Dataset.from_pandas, .from_polars or .from_text makes a Dataset")
        source = _Indexed(data, argument, collate)
    elif hasattr(data, "__iter__") and not isinstance(data, type):
        source = Stream(data, argument, collate)
    else:
        more = ": give the Dataset a __len__" if isinstance(data, Dataset) else ""
        raise UsageTypeError(f"{argument}: expected a Dataset, a DataLoader, a list of dictionaries, a dictionary of arrays or an "
                             f"iterable, got {type(data).__name__}{more}")
    if getattr(collate, "seed", None) is not None and _rows.is_of_transformers(collate):
        raise UsageError(f"{argument}: expected a collator without a seed, got {type(collate).__name__}(seed={collate.seed}): leave it "
                         "out, because what it draws depends on what it drew before; here each sample has a seed of its own")
    return Samples(source, argument, _rows.pad_id(collate), sequence_length)


def with_labels(sample: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the sample with labels for a causal language model: its input_ids, and -100 where attention_mask is 0."""
    if "labels" in sample:
        return sample
    labels = sample["input_ids"].to(torch.int64, copy=True)
    if "attention_mask" in sample:
        labels[sample["attention_mask"] == 0] = _rows.IGNORED
    return {**sample, "labels": labels}


class Samples:
    """Samples that the engine reads by index. Thread-safe.

    `ordered`: the data fixes the order, so the engine must read it in sequence. `streamed`: the data can only be read from its beginning,
    so reading other rows than the next ones is slow. `draws`: reading uses the global random generators (random_lock in _rows.py).
    `batch_size`: the loader's, or None. `length`: the number of samples of an epoch; None if the data does not know it, and then the caller
    sets it to the number of rows that the run reads. `kept`: the last rows of a loader that stay in memory for threads that read different
    rows; two batches stay in any case.
    """

    def __init__(self, source: _Source, argument: str, pad_id: int, sequence_length: Optional[int]) -> None:
        from ..errors import UsageError

        self._source, self._argument, self._pad_id, self._sequence_length = source, argument, pad_id, sequence_length
        self._lock = threading.RLock()
        self.ordered, self.streamed, self.batch_size = source.ordered, source.streamed, source.batch_size
        if source.length == 0:
            raise UsageError(f"{argument}: expected at least one sample, got none")
        given, draws = _rows.tried(lambda: source.read(0), source.seed(0))
        self.draws = source.draws if isinstance(source, Stream) else draws
        self.length = source.length  # a stream's is known once its first item is
        self.rows_per_step = 1
        self.first = {key: value.clone() for key, value in self._sample(given, 0).items()}
        source.forget()
        again = self._made(0, 0)
        if again.keys() != self.first.keys() or not all(_rows.same(again[key], value) for key, value in self.first.items()):
            raise UsageError(f"{source.name(0)}: expected the same values at each reading, got others the second time: let the data draw "
                             "its random numbers from the global generators of torch, random or numpy, which are seeded here for each "
                             "sample, and not from one of its own")

    @property
    def kept(self) -> int:
        return self._source.kept

    @kept.setter
    def kept(self, rows: int) -> None:
        self._source.kept = rows

    def __len__(self) -> int:
        from ..errors import UsageError

        if self.length is None:
            raise UsageError(f"{self._argument}: expected data that knows its length, or a number of steps, got an iterable of unknown "
                             "length: give steps=")
        return self.length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if index < 0 or (self.length is not None and index >= self.length):
            raise IndexError(f"{self._argument}: expected an index from 0 to {len(self) - 1}, got {index}")
        return self.read(index)

    def read(self, index: int, row: Optional[int] = None) -> dict[str, torch.Tensor]:
        """Returns sample `index`. `row` is its row in the whole run (default: `index`): it seeds the sample's random numbers, and tells
        the epoch, which may have another order in a loader."""
        sample = self._made(index, index if row is None else row)
        self._check(sample, index if row is None or not self.ordered else row)
        return sample

    def state_dict(self, row: int) -> Optional[dict[str, Any]]:
        """Returns a state of a loader that has one, from which row `row` of the run is reached fastest. None: rows are counted from the
        beginning of the data."""
        with self._lock:
            return self._source.state_dict(row) if isinstance(self._source, Stream) else None

    def load_state_dicts(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Takes results of state_dict() of an earlier process."""
        with self._lock:
            if isinstance(self._source, Stream):
                self._source.load_state_dicts(states)

    def _made(self, index: int, row: int) -> dict[str, torch.Tensor]:
        at = row if self.ordered else index
        with self._lock, _rows.seeded(self._source.seed(row)) if self.draws and not self.streamed else contextlib.nullcontext():
            return self._sample(self._source.read(at), at)

    def _sample(self, given: Mapping[str, Any], at: int) -> dict[str, torch.Tensor]:
        def where() -> str:
            return self._source.name(at)

        return _rows.padded(_rows.tensors(given, where), where, self._pad_id, self._sequence_length)

    def _check(self, sample: dict[str, torch.Tensor], at: int) -> None:
        from ..errors import DataError

        if sample.keys() != self.first.keys():
            raise DataError(f"[data] {self._source.name(at)}: expected the names of the first sample ({', '.join(self.first)}), got "
                            f"{', '.join(sample)}")
        for key, value in sample.items():
            first = self.first[key]
            if value.shape != first.shape:
                unpadded = self._sequence_length is None and "input_ids" in sample
                hint = ": give sequence_length=, to which rows of tokens are padded" if unpadded else ""
                raise DataError(f"[data] {self._source.name(at)}[{key!r}]: expected the shape of the first sample, {list(first.shape)}, "
                                f"got {list(value.shape)}{hint}")
            if value.dtype != first.dtype:
                raise DataError(f"[data] {self._source.name(at)}[{key!r}]: expected {first.dtype} as in the first sample, got "
                                f"{value.dtype}")


_STATE = "loader.pt"  # in a checkpoint: where a loader with a state_dict() was


def saved_state(samples: Samples, step: int) -> dict[str, bytes]:
    """Returns the file of a checkpoint after `step` that says where the loader is, if it has a state that torch.load() reads without
    running code. Without it a resumed run reads the data from the beginning to where it was."""
    state, file = samples.state_dict(step * samples.rows_per_step), io.BytesIO()
    if state is None:
        return {}
    try:
        torch.save(state, file)
        torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    except Exception:  # whatever its objects say to being pickled
        return {}
    return {_STATE: file.getvalue()}


def saved_states(run: Any) -> list[Mapping[str, Any]]:
    """Returns the states of the loader in the checkpoints of a run folder."""
    states = []
    for file in pathlib.Path(os.fsdecode(run)).glob(f"checkpoints/*/{_STATE}"):
        with contextlib.suppress(OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError):
            state = torch.load(file, weights_only=True)
            numbers = ("row", "epoch", "items", "first")
            if isinstance(state, dict) and "loader" in state and all(isinstance(state.get(key), int) for key in numbers):
                states.append(state)
    return states


class _Columns:
    """A dictionary of arrays as a sequence of rows."""

    def __init__(self, columns: Mapping[str, Any], argument: str) -> None:
        from ..errors import UsageError, UsageTypeError

        self._columns = dict(columns.items())  # transformers' BatchEncoding has keys for rows too, which items() leaves out
        if not self._columns:
            raise UsageError(f"{argument}: expected at least one array, got an empty dictionary")
        self._rows = -1
        for key, column in self._columns.items():
            if not hasattr(column, "__len__") or isinstance(column, (str, bytes)) or getattr(column, "ndim", 1) == 0:
                raise UsageTypeError(f"{argument}[{key!r}]: expected an array with one row for each sample, got {type(column).__name__}")
            if self._rows not in (-1, len(column)):
                raise UsageError(f"{argument}[{key!r}]: expected one row for each sample, {self._rows} as in the arrays before it, got "
                                 f"{len(column)}")
            self._rows = len(column)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {key: column[index] for key, column in self._columns.items()}


class _Indexed:
    """Data with len() and [index]."""

    ordered = streamed = False
    batch_size, kept = None, 0

    def __init__(self, data: Any, argument: str, collate: Optional[Collate]) -> None:
        self._data, self._argument, self._collate = data, argument, collate
        self.length = len(data)

    def name(self, at: int) -> str:
        return f"{self._argument}[{at}]"

    def seed(self, row: int) -> int:
        return row

    def forget(self) -> None:
        pass

    def read(self, at: int) -> Any:
        row = self._data[at]
        if self._collate is None:
            return _rows.named(row, self.name(at))
        return _rows.row_of(_rows.collated(self._collate, [row], self.name(at)), 0)


def _refuse_sets(data: Mapping[str, Any], argument: str) -> None:
    from ..errors import UsageTypeError

    sets = [key for key, value in data.items() if isinstance(value, Dataset) or hasattr(value, "column_names")]
    if sets:
        raise UsageTypeError(f"{argument}: expected one data set, got a dictionary of them ({', '.join(map(str, sets))}): write "
                             f"{argument}=data[{sets[0]!r}]")
