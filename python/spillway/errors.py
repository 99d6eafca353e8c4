"""What can go wrong, by kind. Every message says what was expected, what came, where, and what to do."""

from __future__ import annotations

from . import _core


class SpillwayError(Exception):
    """Any error of Spillway's. `status` is the exit status that the program would have."""

    status = 1


class InternalError(SpillwayError, RuntimeError):
    """A promise inside the library is broken: a bug."""

    status = 1


class UsageError(SpillwayError, ValueError):
    """Arguments, flags or a configuration that cannot be."""

    status = 2


class RefusedError(SpillwayError, MemoryError):
    """It would not fit into memory or onto the disk; nothing was touched."""

    status = 3


class DataError(SpillwayError, ValueError):
    """Data or a checkpoint that is unreadable, damaged, or newer than this version."""

    status = 4


class DeviceError(SpillwayError, OSError):
    """A failure of a disk or a device, or memory refused by the system. The last good checkpoint stands."""

    status = 5


class PeerError(SpillwayError, ConnectionError):
    """Another rank died or hangs."""

    status = 6


class NumbersError(SpillwayError, ArithmeticError):
    """The numbers failed: too many steps whose gradients were not finite."""

    status = 7


_kinds = (InternalError, UsageError, RefusedError, DataError, DeviceError, PeerError, NumbersError)
_by_status = {kind.status: kind for kind in _kinds}
_core._set_errors(_by_status)


def _of_status(status: int, message: str) -> SpillwayError:
    return _by_status.get(status, InternalError)(message)
