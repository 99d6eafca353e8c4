"""Converts keyword arguments to flags of the program."""

from __future__ import annotations

import os

from .errors import UsageError, UsageTypeError

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any


def _text(name: str, value: Any) -> bytes:
    """Returns one word of a command line as bytes in the encoding of the file system. It cannot contain a null byte."""
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
    """Converts device_memory="1GiB" to --device-memory=1GiB. True gives the flag without a value, False and None leave the flag out, and a
    list repeats the flag."""
    made: list[bytes] = []
    for name, value in flags.items():
        flag = b"--" + _text("the name of a flag", name.strip("_").replace("_", "-"))
        if value is None or value is False:
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            made.append(flag if one is True else flag + b"=" + _text(name, one))
    return made
