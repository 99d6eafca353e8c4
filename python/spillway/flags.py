"""Keyword arguments as the program's flags."""

from __future__ import annotations

import os

from .errors import UsageError, UsageTypeError

TYPE_CHECKING = False  # without the time that importing typing takes
if TYPE_CHECKING:
    from typing import Any


def _text(name: str, value: Any) -> bytes:
    """One word of a command line: the system's bytes of it, in which no null byte can be."""
    if isinstance(value, (str, bytes, os.PathLike)):
        try:
            word = os.fsencode(value)
        except UnicodeEncodeError:
            raise UsageError(f"{name}: expected text that can be encoded, got text with a lone surrogate (half of a character)") from None
    elif isinstance(value, float):
        word = float.__repr__(value).encode()
    elif isinstance(value, int) and not isinstance(value, bool):
        word = int.__repr__(value).encode()
    else:
        raise UsageTypeError(f"{name}: expected a word, a number, a path, True, or a list of them, got {type(value).__name__}")
    if b"\0" in word:
        raise UsageError(f"{name}: expected text without null characters, got text with some")
    return word


def words(flags: dict[str, Any]) -> list[bytes]:
    """device_memory="1GiB" is --device-memory=1GiB; True is the bare flag, False and None are none, a list is the flag repeated."""
    made: list[bytes] = []
    for name, value in flags.items():
        flag = b"--" + _text("the name of a flag", name.strip("_").replace("_", "-"))
        if value is None or value is False:
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            made.append(flag if one is True else flag + b"=" + _text(name, one))
    return made
