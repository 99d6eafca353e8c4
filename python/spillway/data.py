"""Tokens and rows of one's own as files that a Trainer reads."""

from __future__ import annotations

import array
import json
import os
import sys
import warnings

TYPE_CHECKING = False  # without the time that importing typing takes
if TYPE_CHECKING:
    from typing import Any, Iterable

# What the layouts of rows read (docs/fine-tuning.md). A row with tokens keeps those keys alone: datasets leave the text beside them.
_TOKEN_KEYS = ("input_ids", "labels", "attention_mask", "position_ids", "seq_lengths", "completion_mask", "assistant_masks", "token_type_ids")
_TEXT_KEYS = ("text", "prompt", "completion", "messages", "conversations", "instruction", "input", "output", "system", "history")
_KEYS = (*_TOKEN_KEYS, *_TEXT_KEYS, "tools", "documents", "chat_template_kwargs")
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

    A row is a dictionary as Hugging Face's datasets give it: "input_ids" with "labels" (-100: not a target), "attention_mask" and what
    else TRL and transformers write beside them, "text", "prompt" and "completion", "messages", or Alpaca's or ShareGPT's keys; or a list or
    an array of token ids. docs/fine-tuning.md has all keys; a warning names others once. Unlike write_tokens() it keeps rows apart:
    attention does not cross them. `rows` is gone over once and never held whole, and the file is there whole or not at all.
    """
    if not os.fsdecode(file).endswith(".jsonl"):
        raise ValueError(f"write_rows: expected a name that ends in .jsonl, got {os.fsdecode(file)}")

    unread: dict[str, None] = {}  # an ordered set

    def write(out: Any) -> None:
        number = -1
        for number, row in enumerate(rows):
            out.write(_line(row, number, unread))
        if number < 0:
            raise ValueError("write_rows: expected rows, got none")

    path = _whole(file, write)
    if unread:
        warnings.warn(f"write_rows: rows have keys that are not read: {', '.join(unread)}", stacklevel=2)
    return path


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


def _line(row: Any, number: int, unread: dict[str, None]) -> bytes:
    if not isinstance(row, dict):
        row = {"input_ids": row}
    given = {key: _listed(value) for key, value in row.items() if value is not None}
    tokens = "input_ids" in given
    kept = {key: value for key, value in given.items() if key in (_TOKEN_KEYS if tokens else _KEYS)}
    if not kept:
        raise ValueError(f"write_rows: expected a key of {', '.join(_KEYS)} in row {number}, got {', '.join(map(str, row)) or 'none'}")
    unread.update((str(key), None) for key in given if key not in kept and not (tokens and key in _KEYS))
    if tokens and not isinstance(kept["input_ids"], (list, tuple)):
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
        if any(kept != 1 for kept in _listed(row.get("attention_mask")) or ()):
            raise ValueError(f"write_tokens: expected rows without padding, row {number} has an attention_mask that is not 1: write_rows() reads it")
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
