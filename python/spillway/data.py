"""Tokens and rows of one's own as files that a Trainer reads."""

from __future__ import annotations

import array
import json
import os
import sys

TYPE_CHECKING = False  # without the time that importing typing takes
if TYPE_CHECKING:
    from typing import Any, Iterable

# What the layouts of rows read (docs/fine-tuning.md); what else a row has stays behind.
_KEYS = ("input_ids", "labels", "attention_mask", "text", "prompt", "completion", "messages", "instruction", "input", "output", "conversations")
_MAGIC, _VERSION = 20240801, 7  # llm.c's header for tokens of 32 bits: src/data/token_format.h


def write_tokens(file: str | os.PathLike, rows: Iterable[Any]) -> str:
    """Writes token ids as a token file for Trainer(data=...), one row behind the other, and returns its path.

    A row is a list or an array of token ids, or a dictionary that has one as "input_ids"; `rows` is gone over once and never held whole.
    The file is there whole or not at all. A run goes on from it exactly, since it is the same file: an iterator could not promise that.
    """

    def write(out: Any) -> None:
        out.write(bytes(1024))
        tokens = 0
        for number, row in enumerate(rows):
            tokens += _write_tokens(out, row, number)
        if tokens == 0:
            raise ValueError("write_tokens: expected rows of tokens, got none")
        out.seek(0)
        _little(array.array("I", [_MAGIC, _VERSION, tokens & 0xFFFFFFFF, tokens >> 32])).tofile(out)

    return _whole(file, write)


def write_rows(file: str | os.PathLike, rows: Iterable[Any]) -> str:
    """Writes rows, a line of JSON each, as a .jsonl file for Trainer(data=...), and returns its path, which must end in .jsonl.

    A row is a dictionary as Hugging Face's datasets give it: "input_ids" with "labels" (-100: not a target) and "attention_mask" if need
    be, "text", "prompt" and "completion", "messages", or Alpaca's or ShareGPT's keys; or a list or an array of token ids. Unlike
    write_tokens() it keeps rows apart: attention does not cross them. `rows` is gone over once and never held whole, and the file is there
    whole or not at all.
    """
    if not os.fsdecode(file).endswith(".jsonl"):
        raise ValueError(f"write_rows: expected a name that ends in .jsonl, got {os.fsdecode(file)}")

    def write(out: Any) -> None:
        number = -1
        for number, row in enumerate(rows):
            out.write(_line(row, number))
        if number < 0:
            raise ValueError("write_rows: expected rows, got none")

    return _whole(file, write)


def _whole(file: str | os.PathLike, write: Any) -> str:
    path = os.fspath(file)
    part = f"{os.fsdecode(path)}.partial-{os.getpid()}"
    try:
        with open(part, "wb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)
    return path


def _listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _line(row: Any, number: int) -> bytes:
    if not isinstance(row, dict):
        row = {"input_ids": row}
    kept = {key: _listed(row[key]) for key in _KEYS if row.get(key) is not None}
    if not kept:
        raise ValueError(f"write_rows: expected a key of {', '.join(_KEYS)} in row {number}, got {', '.join(map(str, row)) or 'none'}")
    if "input_ids" in kept:  # whose text datasets leave beside it
        kept = {key: kept[key] for key in _KEYS[:3] if key in kept}
        if not isinstance(kept["input_ids"], (list, tuple)):
            raise ValueError(f"write_rows: expected a list or an array of token ids in row {number}, got {type(row['input_ids']).__name__}")
    try:
        return json.dumps(kept, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"write_rows: expected texts, whole numbers and lists of them in row {number}: {error}") from None


def _write_tokens(out: Any, row: Any, number: int) -> int:
    if isinstance(row, dict):
        if "labels" in row:
            raise ValueError(f"write_tokens: expected rows without labels of their own, row {number} has some: write_rows() keeps them")
        if "input_ids" not in row:
            raise ValueError(f'write_tokens: expected "input_ids" in row {number}, got {", ".join(map(str, row))}')
        row = row["input_ids"]
    try:
        values = array.array("I", _listed(row))
    except (TypeError, OverflowError):
        raise ValueError(f"write_tokens: expected one axis of whole numbers from 0 to 4294967295 in row {number}, got something else") from None
    _little(values).tofile(out)
    return len(values)


def _little(values: array.array) -> array.array:
    if sys.byteorder == "big":
        values.byteswap()
    return values
