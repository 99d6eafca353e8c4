"""Writes your own tokens and rows to files that a Trainer reads."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import stat
import sys
import warnings

from .errors import UsageError, UsageTypeError, _system_errors
from .flags import _text

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Iterable

# The keys that Spillway reads in rows (docs/fine-tuning.md). Of a row with token ids only _TOKEN_KEYS are kept, because data sets leave the
# row's text in the row as well.
_TOKEN_KEYS = ("input_ids", "labels", "attention_mask", "position_ids", "seq_lengths", "completion_mask", "assistant_masks", "token_type_ids")
_TEXT_KEYS = ("text", "prompt", "completion", "messages", "conversations", "instruction", "input", "output", "system", "history")
_KEYS = (*_TOKEN_KEYS, *_TEXT_KEYS, "tools", "documents", "chat_template_kwargs")
_MAGIC, _VERSION = 20240801, 7  # llm.c's header for tokens of 32 bits: src/data/tokens/token_format.h


def write_tokens(file: str | os.PathLike, rows: Iterable[Any]) -> str:
    """Writes token ids to a token file for Trainer(data=...), one row after the other, and returns its path.

    A row is a list or an array of token ids, or a dictionary with such a list as "input_ids"; `rows` is read once and never held in
    memory as a whole, and may be batches of rows, or a DataFrame, as for write_rows(). The file is written completely or not at all. A run
    can resume exactly because the file stays the same, unlike an iterator.
    """

    def write(out: Any) -> None:
        out.write(bytes(1024))
        tokens = 0
        for number, row in enumerate(_rows("write_tokens", rows)):
            tokens += _write_tokens(out, row, number)
        if tokens == 0:
            raise UsageError("write_tokens: expected rows of tokens, got none")
        out.seek(0)
        out.write(_little(array.array("I", [_MAGIC, _VERSION, tokens & 0xFFFFFFFF, tokens >> 32])))

    return _whole(file, write)


def write_rows(file: str | os.PathLike, rows: Iterable[Any]) -> str:
    """Writes rows, one line of JSON each, to a .jsonl file for Trainer(data=...), and returns its path, which must end in .jsonl.

    A row is a dictionary as Hugging Face's datasets give it: "input_ids" with "labels" (-100: no target), "attention_mask" and the
    other keys that TRL and transformers write, "text", "prompt" and "completion", "messages", or Alpaca's or ShareGPT's keys; or a list or
    an array of token ids; or a text. `rows` may also be a PyTorch Dataset or DataLoader, whose batches of equally many rows are taken
    apart, a DataFrame of pandas or Polars, or a Table of pyarrow. docs/fine-tuning.md lists all keys; a warning names unknown ones once. Unlike write_tokens() it keeps rows
    apart: attention does not cross their boundaries. `rows` is read once and never held in memory as a whole, and the file is written
    completely or not at all.
    """
    name = _name(file)
    if not name.endswith(".jsonl"):
        raise UsageError(f"write_rows: expected a name that ends in .jsonl, got {name}")

    unread: dict[str, None] = {}  # a dict serves as an ordered set

    def write(out: Any) -> None:
        number = -1
        for number, row in enumerate(_rows("write_rows", rows)):
            out.write(_line(row, number, unread))
        if number < 0:
            raise UsageError("write_rows: expected rows, got none")

    path = _whole(file, write)
    if unread:
        warnings.warn(f"write_rows: rows have keys that are ignored: {', '.join(unread)}", stacklevel=2)
    return path


def _whole(file: str | os.PathLike, write: Any) -> str:
    """Writes to a locked file PATH.partial-PID and then renames it to PATH. A file that existed before is replaced, but never one that was
    created meanwhile."""
    name = _name(file)
    before = _identity(name)
    _remove_leftovers(name)
    part = f"{name}.partial-{os.getpid()}"
    with _system_errors(f"write {part}"):
        out = _Checked(open(part, "xb"), part)
    try:
        with out.file:
            with contextlib.suppress(OSError):  # raised by a filesystem without locks
                fcntl.flock(out.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write(out)
            with _system_errors(f"write {part}"):
                out.file.flush()
                os.fsync(out.file.fileno())
            with _system_errors(f"put {name} in place"):
                _put_in_place(part, name, before)
    finally:
        with contextlib.suppress(OSError):
            os.remove(part)
    return os.fspath(file)


def _rows(what: str, rows: Any) -> Any:
    if hasattr(rows, "iter_rows"):  # a DataFrame of Polars
        return rows.iter_rows(named=True)
    if hasattr(rows, "itertuples") and hasattr(rows, "columns"):  # a DataFrame of pandas, where an empty cell is NaN
        return ({key: None if isinstance(value, float) and value != value else value
                 for key, value in zip(rows.columns, row)} for row in rows.itertuples(index=False, name=None))
    if hasattr(rows, "to_pylist") and hasattr(rows, "to_batches"):  # a Table of pyarrow
        return (row for batch in rows.to_batches() for row in batch.to_pylist())
    if is_indexed(rows):
        return _single(rows[at] for at in range(len(rows)))
    try:
        if not isinstance(rows, (str, bytes)):
            return _single(iter(rows))
    except TypeError:
        pass
    raise UsageTypeError(f"{what}: expected rows, got {type(rows).__name__}")


def is_indexed(rows: Any) -> bool:
    """Whether `rows` is a sequence by index only, as PyTorch's Dataset is."""
    return hasattr(rows, "__getitem__") and hasattr(rows, "__len__") and not hasattr(rows, "__iter__")


def _single(rows: Any) -> Any:
    """Yields the rows, those of a batch one by one: a dictionary with rows of input_ids or with texts, an array of two axes, or a list or tuple
    with one such array first, as a DataLoader gives them."""
    for row in rows:
        if isinstance(row, dict):
            columns = {key: _listed(value) for key, value in row.items() if value is not None}
            first = columns.get("input_ids", columns.get("text"))
            if isinstance(first, list) and first and isinstance(first[0], (list, str)):
                yield from ({key: value[at] for key, value in columns.items()} for at in range(len(first)))
                continue
        elif isinstance(row, (list, tuple)) and row and getattr(row[0], "ndim", 0) == 2:
            yield from _listed(row[0])
            continue
        elif isinstance(row, tuple) and row and getattr(row[0], "ndim", 0) == 1:  # a sample of PyTorch's TensorDataset
            yield _listed(row[0])
            continue
        elif getattr(row, "ndim", 1) == 2:
            yield from _listed(row)
            continue
        yield row


def _name(file: Any) -> str:
    if not isinstance(file, (str, bytes, os.PathLike)):
        raise UsageTypeError(f"file: expected a path, got {type(file).__name__}")
    return os.fsdecode(_text("file", file))


class _Checked:
    """A file whose errors become Spillway's exceptions. Errors in the rows that are written to it stay as they are."""

    def __init__(self, file: Any, name: str) -> None:
        self.file = file
        self._name = name

    def write(self, data: Any) -> None:
        with _system_errors(f"write {self._name}"):
            self.file.write(data)

    def seek(self, place: int) -> None:
        with _system_errors(f"write {self._name}"):
            self.file.seek(place)


def _identity(name: str) -> tuple[int, ...] | None:
    with _system_errors(f"look at {name}"):
        try:
            found = os.stat(name)
        except FileNotFoundError:
            return None
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"[system] expected {name} to be a regular file or not to exist, got something else: give another name")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _put_in_place(part: str, name: str, before: tuple[int, ...] | None) -> None:
    if _identity(name) != before:
        raise UsageError(f"[system] expected {name} to stay as it was, got a file that was changed or created meanwhile: give another name")
    if before is not None:
        os.replace(part, name)
    else:
        try:
            os.link(part, name)  # fails if another process has created the name at this moment
        except FileExistsError:
            raise UsageError(f"[system] expected no file named {name}, got one that was created meanwhile: give another name") from None
        except OSError:  # raised by a filesystem without hard links
            os.rename(part, name)
    folder = os.open(os.path.dirname(name) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _remove_leftovers(name: str) -> None:
    """Removes the partial files of processes that are dead: nobody holds the locks of these files."""
    folder, start = os.path.dirname(name) or ".", os.path.basename(name) + ".partial-"
    with _system_errors(f"list the folder {folder}"):
        parts = [entry.path for entry in os.scandir(folder) if entry.name.startswith(start) and entry.name[len(start) :].isdigit()]
    for part in parts:
        with contextlib.suppress(OSError), open(part, "rb") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if part == f"{os.path.join(os.path.dirname(name), start)}{os.getpid()}":
                    raise UsageError(f"[system] expected {name} to be written by one thread, got two at once: use one thread") from None
                continue
            os.remove(part)


def _listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _line(row: Any, number: int, unread: dict[str, None]) -> bytes:
    if not isinstance(row, dict):
        row = {"text" if isinstance(row, str) else "input_ids": row}
    given = {key: _listed(value) for key, value in row.items() if value is not None}
    tokens = "input_ids" in given
    kept = {key: value for key, value in given.items() if key in (_TOKEN_KEYS if tokens else _KEYS)}
    if not kept:
        raise UsageError(f"write_rows: expected a key among {', '.join(_KEYS)} in row {number}, got {', '.join(map(str, row)) or 'none'}")
    unread.update((str(key), None) for key in given if key not in kept and not (tokens and key in _KEYS))
    if tokens and not isinstance(kept["input_ids"], (list, tuple)):
        one = ": write [ids] for a single row of ids" if isinstance(kept["input_ids"], int) else ""
        raise UsageError(f"write_rows: expected a list or an array of token ids in row {number}, got {type(row['input_ids']).__name__}{one}")
    try:
        return json.dumps(kept, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"write_rows: expected only texts, whole numbers and lists of them in row {number}: {error}") from None


def _write_tokens(out: Any, row: Any, number: int) -> int:
    if isinstance(row, dict):
        if "labels" in row:
            raise UsageError(f"write_tokens: expected rows without labels, but row {number} has some: use write_rows(), which keeps them")
        if "input_ids" not in row:
            raise UsageError(f'write_tokens: expected "input_ids" in row {number}, got {", ".join(map(str, row))}')
        if any(kept != 1 for kept in _listed(row.get("attention_mask")) or ()):
            raise UsageError(f"write_tokens: expected rows without padding, but the attention_mask of row {number} is not 1 everywhere: "
                             "use write_rows(), which reads it")
        row = row["input_ids"]
    listed, values = _listed(row), None
    if hasattr(listed, "__iter__") and not isinstance(listed, (str, bytes, bytearray)):
        listed = list(listed)  # exceptions of the user's iterator pass through
        with contextlib.suppress(TypeError, OverflowError):
            values = array.array("I", listed) if bool not in set(map(type, listed)) else None
    if values is None:
        raise UsageError(f"write_tokens: expected a one-dimensional list or array of whole numbers from 0 to 4294967295 in row {number}, "
                         "got something else")
    out.write(_little(values))
    return len(values)


def _little(values: array.array) -> array.array:
    if sys.byteorder == "big":
        values.byteswap()
    return values
