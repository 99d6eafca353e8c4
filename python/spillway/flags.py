"""Keyword arguments as the program's flags."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # without the time that importing typing takes
if TYPE_CHECKING:
    from typing import Any


def _text(name: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, (str, os.PathLike)):
        return os.fsencode(value)
    if isinstance(value, float):
        return repr(value).encode()
    if isinstance(value, int):
        return str(value).encode()
    raise TypeError(f"{name}: expected a word, a number, a path, True, or a list of them, got {type(value).__name__}")


def words(flags: dict[str, Any]) -> list[bytes]:
    """device_memory="1GiB" is --device-memory=1GiB; True is the bare flag, False and None are none, a list is the flag repeated."""
    made: list[bytes] = []
    for name, value in flags.items():
        flag = b"--" + name.strip("_").replace("_", "-").encode()
        if value is None or value is False:
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            made.append(flag if one is True else flag + b"=" + _text(name, one))
    return made
