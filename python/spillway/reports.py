"""The program's other commands. Their results can be printed, shown in a notebook, or read as a dictionary."""

from __future__ import annotations

import os

from . import _core
from .errors import _of_status
from .flags import _text, words

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Optional, TypedDict

    class ByTier(TypedDict):
        """Bytes in each tier."""

        device: int
        host: int
        nvme: int

    class PlanRow(TypedDict):
        """What memory is used for, and the bytes that this use takes."""

        what: str
        bytes: ByTier

    class Alternative(TypedDict):
        """Another plan that fits, and the flag that asks for it."""

        flag: str
        predicted_step_s: float
        nvme_written_bytes_per_step: int
        total_bytes: ByTier

    class Wear(TypedDict):
        """Bytes written to NVMe, and the days until a drive reaches its rated writes; None if no rating was given."""

        per_token: float
        per_day: float
        days_to_endurance: Optional[float]

    class Checkpoint(TypedDict):
        """The newest complete checkpoint."""

        name: str
        step: int
        age_s: float

    class Finding(TypedDict):
        """A fact about the machine. level: "green", "yellow" or "red"; cure: the fall-back in use, or what to do."""

        level: str
        name: str
        text: str
        cure: str


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

    def __init__(self, values: Any, text: str) -> None:
        self._values = values
        self._text = text.rstrip("\n")

    def to_dict(self) -> Any:
        return self._values

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html

        return f'<pre style="white-space: pre; overflow-x: auto">{html.escape(str(self))}</pre>'


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _size(size: Optional[int]) -> str:
    if not size or size >= 2**60:  # the limit is missing, or so large that it means no limit
        return "–"
    unit = max(0, min(4, (int(size).bit_length() - 1) // 10))
    return f"{size / 1024**unit:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


class PlanReport(Report):
    """A plan that fits. report.total_bytes is report["total_bytes"]. Bytes are those of one rank: the first, since no other has more."""

    rows: list[PlanRow]
    """What each tier holds, by purpose."""
    total_bytes: ByTier
    budget_bytes: ByTier
    read_bytes_per_step: ByTier
    written_bytes_per_step: ByTier
    exchanged_bytes_per_step: int
    """Bytes exchanged with other data-parallel ranks."""
    sent_bytes_per_step: int
    """Bytes sent to other pipeline stages."""
    tokens_per_step: int
    """Tokens that all ranks together train on in a step."""
    predicted_step_s: float
    """The predicted seconds of a step."""
    computing_share: float
    """The part of a step in which the device computes, from 0 to 1."""
    lane_shares: dict[str, float]
    """The part of a step in which each lane is busy, from 0 to 1."""
    steps: Optional[int]
    """The steps of the run; None if they follow from data that has not been prepared yet."""
    nvme_written_per_day: float
    days_to_endurance: Optional[float]
    """Days until a drive reaches its rated writes; None if no rating was given or nothing is written."""
    nvme_write_price_s: float
    """Seconds that the planner adds to the time of a step for its writes to NVMe when it compares plans, to spare the drive."""
    ranks: int
    pipeline_stages: int
    zero_stage: int
    prefetch: int
    """The number of blocks whose tensors are prefetched."""
    recompute: bool
    """Whether blocks are recomputed in the backward pass (gradient checkpointing)."""
    instructions: int
    """The number of instructions of a step."""
    alternatives: list[Alternative]
    """Other plans that fit, fastest first."""
    command: str
    """The command that trains like this."""
    cluster: dict[str, Any]
    """The machines of cluster=: the vendor's figures, and what is assumed; only with cluster=."""
    roofline: dict[str, Any]
    """The time that the kernels of a step would take on a GPU that reaches its ceilings; only with roofline=True."""

    def __init__(self, values: dict[str, Any], text: str) -> None:
        super().__init__(values, text)
        vars(self).update(values)

    def _repr_html_(self) -> str:
        import html

        tiers = ("device", "host", "nvme")

        def line(cell: str, what: str, size: Any) -> str:
            sizes = "".join(f'<td style="text-align: right">{_size(size[tier])}</td>' for tier in tiers)
            return f'<tr><{cell} style="text-align: left">{html.escape(what)}</{cell}>{sizes}</tr>'

        head = "".join(f'<th style="text-align: right">{tier}</th>' for tier in ("", *tiers))
        rows = [line("td", row["what"], row["bytes"]) for row in self.rows]
        rows += [line("th", "total", self.total_bytes), line("th", "budget", self.budget_bytes)]
        return (f"<p>It fits. A step is predicted to take {_duration(self.predicted_step_s)}.</p>"
                f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
                f"<details><summary>The whole plan</summary>{super()._repr_html_()}</details>")


class StatusReport(Report):
    """The progress of a run. report.step is report["step"]. Means are those of the last steps."""

    state: str
    """"running", "finished" or "stopped"."""
    owner: Optional[str]
    """The process that runs it, if it is running."""
    step: int
    """The last step that was completed."""
    steps: Optional[int]
    """The steps of the whole run."""
    ranks: int
    slowest_rank: Optional[int]
    """The rank for which the others waited most often in the last steps."""
    loss: Optional[float]
    validation_loss: Optional[float]
    step_s: Optional[float]
    """The mean seconds of a step."""
    tokens_per_s: Optional[float]
    positions_per_s: Optional[float]
    """Tokens and padding per second."""
    left_s: Optional[float]
    """The estimated seconds until the last step."""
    last_step_age_s: Optional[float]
    """The seconds since the last step."""
    tier_bytes: Optional[ByTier]
    """Bytes in use at the last step."""
    peak_bytes: Optional[ByTier]
    read_bytes_per_step: ByTier
    written_bytes_per_step: ByTier
    nvme_written_bytes: Wear
    checkpoint: Optional[Checkpoint]
    """The newest complete checkpoint."""

    def __init__(self, values: dict[str, Any], text: str) -> None:
        super().__init__(values, text)
        vars(self).update(values)


class DoctorReport(Report):
    """What was found on this machine. report[0] is report.findings[0]."""

    findings: list[Finding]

    def __init__(self, values: list[Finding], text: str) -> None:
        super().__init__(values, text)
        self.findings = values


def _report(line: list[bytes]) -> Report:
    import json

    status, out, err, text = _run(line + [b"--json"])
    if status != 0:
        _raise(status, out, err)
    try:
        values = json.loads(out)
    except ValueError:
        _raise(status, out, err)
    if "error" in values:
        _raise(status, out, err)
    return Report(values, text)


def plan(**flags: Any) -> PlanReport:
    """Shows whether a run with these flags of train fits, its bytes per tier, the time of a step and what limits it, and better settings.
    Raises RefusedError if nothing fits."""
    return PlanReport(*_core._plan(flags))


def schedule(**flags: Any) -> Report:
    """Draws, checks and simulates a pipeline schedule."""
    return _report([b"schedule"] + words(flags))


def doctor(**flags: Any) -> DoctorReport:
    """Checks this machine (cores, memory, disks, GPUs) and gives one line for each. A red line raises no exception."""
    return DoctorReport(*_core._doctor(flags))


def status(run: str | os.PathLike) -> StatusReport:
    """Shows the progress of a run, read from its folder."""
    return StatusReport(*_core._status({"run": _text("run", run)}))


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
