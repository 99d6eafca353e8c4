"""The program's other commands. Their results can be printed, shown in a notebook, or read as a dictionary."""

from __future__ import annotations

import os

from . import _core
from .errors import _of_status
from .flags import _text, words

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any


def _run(line: list[bytes]) -> tuple[int, str, str, str]:
    status, *texts = _core._run_command(line)
    out, err, text = (each.decode(errors="replace") for each in texts)
    return status, out, err, text


def _raise(status: int, out: str, err: str) -> None:
    import json

    message = err.strip()
    try:
        message = json.loads(out)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        pass
    raise _of_status(status, message)


class Report:
    """The result of a command. print(report) shows the text that the command prints; report.to_dict() and report["key"] give the values
    that it prints with --json."""

    def __init__(self, values: dict[str, Any], text: str) -> None:
        self._values = values
        self._text = text

    def to_dict(self) -> dict[str, Any]:
        return self._values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"


def _report(line: list[bytes], fine: tuple[int, ...] = (0,)) -> Report:
    import json

    status, out, err, text = _run(line + [b"--json"])
    if status not in fine:
        _raise(status, out, err)
    try:
        values = json.loads(out)
    except ValueError:
        _raise(status, out, err)
    if "error" in values:
        _raise(status, out, err)
    return Report(values, text.rstrip("\n"))


def plan(**flags: Any) -> Report:
    """Shows whether a run with these flags of train fits, its bytes per tier, the time of a step and what limits it, and better settings.
    Raises RefusedError if nothing fits."""
    return _report([b"plan"] + words(flags))


def schedule(**flags: Any) -> Report:
    """Draws, checks and simulates a pipeline schedule."""
    return _report([b"schedule"] + words(flags))


def doctor(**flags: Any) -> Report:
    """Checks this machine (cores, memory, disks, GPUs) and gives one line for each. A red line raises no exception."""
    return _report([b"doctor"] + words(flags), fine=(0, 3))


def status(run: str | os.PathLike) -> Report:
    """Shows the progress of a run, read from its folder."""
    return _report([b"status", _text("run", run)])


def bench(*what: str, **flags: Any) -> Report:
    """Measures this machine ("memory", "matmul", "cpu-adam", "disk", "link"); plan() uses the results from then on."""
    return _report([b"bench"] + [_text("what", one) for one in what] + words(flags))


def command(name: str, *arguments: str | os.PathLike, **flags: Any) -> str:
    """Runs any other command of the program in this process and returns its stdout: command("export", "runs/mine", out="exported")."""
    if name == "train":
        raise _of_status(2, "[command] expected a command other than train: use spillway.Trainer to train")
    status, out, err, _ = _run([_text("name", name)] + [_text("arguments", word) for word in arguments] + words(flags))
    if status != 0:
        _raise(status, out, err)
    return out
