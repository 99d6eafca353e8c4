"""The exceptions, one for each kind of failure. Every message says what was expected, what was given, where, and what to do."""

from __future__ import annotations

import contextlib

from . import _core

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Iterator


class SpillwayError(Exception):
    """The base of all exceptions of Spillway. `status` is the exit status that the program would have."""

    status = 1


class InternalError(SpillwayError, RuntimeError):
    """An internal check failed: a bug in Spillway."""

    status = 1


class UsageError(SpillwayError, ValueError):
    """Invalid arguments, flags or configuration."""

    status = 2


class UsageTypeError(UsageError, TypeError):
    """An argument has the wrong type."""


class UsageIndexError(UsageError, IndexError):
    """An index is outside of a tensor."""


class UsageKeyError(UsageError, KeyError):
    """A name does not exist."""

    __str__ = Exception.__str__  # KeyError.__str__ would quote the message


class RefusedError(SpillwayError, MemoryError):
    """The run would not fit into memory or onto the disk; nothing was changed."""

    status = 3


class DataError(SpillwayError, ValueError):
    """Data or a checkpoint is unreadable, damaged, or newer than this version."""

    status = 4


class DeviceError(SpillwayError, OSError):
    """A disk or a device failed, or the system refused memory. The last good checkpoint is kept."""

    status = 5


class PeerError(SpillwayError, ConnectionError):
    """Another rank died or hangs."""

    status = 6


class NumbersError(SpillwayError, ArithmeticError):
    """The training diverged: too many steps had gradients that were not finite."""

    status = 7


_kinds = (InternalError, UsageError, RefusedError, DataError, DeviceError, PeerError, NumbersError)
_by_status = {kind.status: kind for kind in _kinds}
_core._set_errors(_by_status, UsageTypeError, UsageIndexError)


def _of_status(status: int, message: str) -> SpillwayError:
    return _by_status.get(status, InternalError)(message)


@contextlib.contextmanager
def _system_errors(what: str) -> Iterator[None]:
    """Turns an OSError into a DeviceError with the system's words and path, and a ValueError (an impossible file name) into a
    UsageError."""
    try:
        yield
    except SpillwayError:
        raise
    except OSError as error:
        raise DeviceError(f"[system] expected to {what}, got: {error}") from error
    except ValueError as error:
        raise UsageError(f"[system] expected to {what}, got: {error}") from error
