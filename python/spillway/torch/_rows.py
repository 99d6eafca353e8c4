"""Rows and batches of a data set as dictionaries of tensors, and the random numbers that they are made with."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import zlib
from collections.abc import Mapping

import torch
from torch.utils.data import default_collate

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Optional, Sequence

    Collate = Callable[[list[Any]], Any]

IGNORED = -100  # the label of a token that is not a target
_INTEGERS = (torch.uint8, torch.int32, torch.int64, torch.bool)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

# PyTorch's, Python's and NumPy's global generators belong to the whole process. Whoever seeds them to draw the same numbers again (here, or
# around a block with dropout) holds this lock as long as the seed matters.
random_lock = threading.RLock()


def named(row: Any, name: str) -> dict[str, Any]:
    from ..errors import UsageTypeError

    if isinstance(row, Mapping):
        return {key: value for key, value in row.items() if value is not None and not isinstance(value, (str, bytes))}
    raise UsageTypeError(f"{name}: expected a dictionary of tensors, got {_kind(row)}: give collate=, a function from a list of rows to a "
                         'dictionary, such as lambda rows: dict(zip(("x", "y"), torch.utils.data.default_collate(rows)))')


def batch_of(batch: Any, name: str) -> dict[str, Any]:
    from ..errors import UsageTypeError

    if not isinstance(batch, Mapping):
        raise UsageTypeError(f"{name}: expected a dictionary of tensors as a batch, got {_kind(batch)}: give the loader a collate_fn that "
                             'names them, such as lambda rows: dict(zip(("x", "y"), torch.utils.data.default_collate(rows)))')
    return {key: value for key, value in batch.items() if not _are_texts(value)}


def _are_texts(value: Any) -> bool:
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    return first is None or isinstance(first, (str, bytes))


def _kind(value: Any) -> str:
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, (list, tuple)) else type(value).__name__


def collated(collate: Collate, rows: Sequence[Any], name: str) -> dict[str, Any]:
    """Returns the batch that a collator makes of `rows`, after it is checked that it has as many rows."""
    from ..errors import UsageError

    if is_of_transformers(collate):  # these take no texts, which transformers.Trainer leaves out
        rows = [named(row, name) if isinstance(row, Mapping) else row for row in rows]
    batch = batch_of(collate(list(rows)), name)
    lists = [key for key, value in batch.items() if isinstance(value, list)]
    if lists and collate is default_collate:  # it makes a tensor of the first elements of all rows, one of the second, and so on
        raise UsageError(f"{name}[{lists[0]!r}]: expected a tensor, got a list from default_collate, whose rows are lists: write "
                         'data.with_format("torch"), or give the loader a collate_fn')
    if rows_in(batch, name) != len(rows):
        raise UsageError(f"{name}: expected the collator to give one row for each of {len(rows)} samples, got {rows_in(batch, name)}: let "
                         "it keep samples apart (padding_free=False)")
    return batch


def is_of_transformers(collate: Any) -> bool:
    return str(getattr(collate, "__module__", "")).startswith("transformers.")


def rows_in(batch: Mapping[str, Any], name: str) -> int:
    from ..errors import UsageError

    rows: Optional[int] = None
    for key, value in batch.items():
        count = len(value) if hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0 else None
        if count is None or count != (rows if rows is not None else count):
            raise UsageError(f"{name}[{key!r}]: expected one row for each sample of the batch{'' if rows is None else f', {rows}'}, got "
                             f"{'one value' if count is None else count}: leave it out of the batch")
        rows = count
    if rows is None:
        raise UsageError(f"{name}: expected tensors, got an empty dictionary")
    return rows


def row_of(batch: Mapping[str, Any], row: int) -> dict[str, Any]:
    return {key: value[row] for key, value in batch.items()}


def tensors(row: Mapping[str, Any], where: Callable[[], str]) -> dict[str, torch.Tensor]:
    from ..errors import UsageError

    if not row:
        raise UsageError(f"{where()}: expected at least one tensor, got none beside texts: tokenize them first")
    return {str(key): _tensor(value, lambda: f"{where()}[{key!r}]") for key, value in row.items()}


def _tensor(value: Any, where: Callable[[], str]) -> torch.Tensor:
    """Returns a tensor of the CPU of a type that the engine has. Integers of other sizes become int64."""
    from ..errors import UsageTypeError

    expected = f"{where()}: expected a tensor, an array or lists of numbers of one length"
    if not isinstance(value, torch.Tensor):
        if not hasattr(value, "__array__") and not isinstance(value, (bool, int, float, list, tuple)):
            raise UsageTypeError(f"{expected}, got {_kind(value)}: leave it out, or let a transform make it a tensor")
        try:
            value = torch.tensor(value)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise UsageTypeError(f"{expected}, got {_kind(value)} ({error}): leave it out, such as with remove_columns()") from None
    if value.layout != torch.strided or value.is_nested or value.is_quantized or value.is_complex() or value.is_meta:
        raise UsageTypeError(f"{expected}, got {value.layout} of {value.dtype} on {value.device}: convert it to a dense tensor of real "
                             "numbers")
    if value.dtype not in _INTEGERS and value.dtype not in _FLOATS:
        if value.is_floating_point():
            raise UsageTypeError(f"{expected}, got {value.dtype}: convert it to float32")
        value = value.to(torch.int64)
    return value.detach().cpu().contiguous()


def padded(sample: dict[str, torch.Tensor], where: Callable[[], str], pad_id: int, length: Optional[int]) -> dict[str, torch.Tensor]:
    """Returns the sample with its rows of tokens padded on the right to `length`."""
    from ..errors import DataError

    ids = sample.get("input_ids")
    if length is None or ids is None or ids.dim() != 1:
        return sample
    padded = dict(sample)
    if "attention_mask" not in sample:
        padded["attention_mask"] = torch.ones(len(ids), dtype=torch.int64)
    for key, value in padded.items():
        # A decoder's tokens have a length of their own. What else has another length than input_ids is not made of tokens.
        own = key.startswith("decoder_") or (key == "labels" and value.numel() > 1)
        if value.dim() != 1 or not (len(value) == len(ids) or (own and not value.is_floating_point())):
            continue
        if len(value) > length:
            raise DataError(f"[data] {where()}[{key!r}]: expected at most {length} tokens (sequence_length), got {len(value)}: cut the "
                            f"rows, such as with tokenizer(text, truncation=True, max_length={length}), or give a longer sequence_length")
        fill = {"input_ids": pad_id, "decoder_input_ids": pad_id, "labels": IGNORED}.get(key, 0)
        padded[key] = torch.nn.functional.pad(value, (0, length - len(value)), value=fill)
    return padded


def pad_id(collate: Any) -> int:
    for owner in (getattr(collate, "tokenizer", None), getattr(collate, "processing_class", None), collate):
        pad_id = getattr(owner, "pad_token_id", None)
        if isinstance(pad_id, int):
            return pad_id
    return 0


def axes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return 1 + (axes(value[0]) if value else 0)
    return int(getattr(value, "ndim", 0))


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and _bytes(one) == _bytes(other)


def _bytes(value: torch.Tensor) -> bytes:
    return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def checksum(item: Mapping[str, Any], batched: bool, name: str) -> int:
    sum_ = 0
    for key, value in tensors(row_of(item, 0) if batched else item, lambda: name).items():
        sum_ = zlib.crc32(_bytes(value), zlib.crc32(key.encode(), sum_))
    return sum_


def generators() -> tuple[Any, ...]:
    """Returns the states of the global generators."""
    numpy = sys.modules.get("numpy")
    of_numpy = numpy.random.get_state()[1:3] if numpy is not None else ((), 0)
    return bytes(torch.get_rng_state().numpy()), random.getstate(), bytes(of_numpy[0]), of_numpy[1]


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds the global generators, and gives them back their states afterwards."""
    numpy = sys.modules.get("numpy")
    with random_lock:
        of_torch, of_python, of_numpy = torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy is not None else None
        try:
            torch.default_generator.manual_seed(seed)
            random.seed(seed)
            if numpy is not None:
                numpy.random.seed(seed % 2**32)
            yield
        finally:
            torch.set_rng_state(of_torch)
            random.setstate(of_python)
            if numpy is not None:
                numpy.random.set_state(of_numpy)


def tried(act: Callable[[], Any], seed: int) -> tuple[Any, bool]:
    """Calls act() with seeded generators. Returns its result and whether it drew from them."""
    with seeded(seed):
        before = generators()
        return act(), generators() != before
