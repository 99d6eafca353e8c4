"""Tokens of one's own as a file that a Trainer reads."""

from __future__ import annotations

import array
import os
import sys

TYPE_CHECKING = False  # without the time that importing typing takes
if TYPE_CHECKING:
    from typing import Any, Iterable

_MAGIC, _VERSION = 20240801, 7  # llm.c's header for tokens of 32 bits: src/data/token_format.h


def write_tokens(file: str | os.PathLike, rows: Iterable[Any]) -> str:
    """Writes token ids as a token file for Trainer(data=...), one row behind the other, and returns its path.

    A row is a list or an array of token ids, or a dictionary that has one as "input_ids"; `rows` is gone over once and never held whole.
    The file is there whole or not at all. A run goes on from it exactly, since it is the same file: an iterator could not promise that.
    """
    path = os.fspath(file)
    part = f"{path}.partial-{os.getpid()}"
    try:
        with open(part, "wb") as out:
            out.write(bytes(1024))
            tokens = 0
            for number, row in enumerate(rows):
                tokens += _write_row(out, row, number)
            if tokens == 0:
                raise ValueError("write_tokens: expected rows of tokens, got none")
            out.seek(0)
            _little(array.array("I", [_MAGIC, _VERSION, tokens & 0xFFFFFFFF, tokens >> 32])).tofile(out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)
    return path


def _write_row(out: Any, row: Any, number: int) -> int:
    if isinstance(row, dict):
        if "labels" in row:
            raise ValueError(f"write_tokens: expected rows without labels of their own, row {number} has some: a .jsonl file says what counts")
        if "input_ids" not in row:
            raise ValueError(f'write_tokens: expected "input_ids" in row {number}, got {", ".join(map(str, row))}')
        row = row["input_ids"]
    ids = row.tolist() if hasattr(row, "tolist") else row
    try:
        values = array.array("I", ids)
    except (TypeError, OverflowError):
        raise ValueError(f"write_tokens: expected one axis of whole numbers from 0 to 4294967295 in row {number}, got something else") from None
    _little(values).tofile(out)
    return len(values)


def _little(values: array.array) -> array.array:
    if sys.byteorder == "big":
        values.byteswap()
    return values
