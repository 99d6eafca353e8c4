"""Measures how much memory PyTorch takes."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise PyTorch's profiler complains on stderr where there is no GPU

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._place import Place

_SEGMENT = 2 << 20  # bytes: PyTorch's allocator takes memory of a GPU in multiples of it


@dataclass
class Bytes:
    """What a call allocated beyond what PyTorch held before it."""

    peak: int
    """the most at any time of the call"""
    held: int
    """what was still allocated at its end"""


def bytes_of(place: Place, calls: list[Callable[[], Any]]) -> list[Bytes]:
    """Runs the calls one after the other and measures each. What a call on the CPU needs once, such as a library's tables, is not
    measured if the caller has run it before."""
    return _on_cpu(calls) if place.device.type == "cpu" else [_on_gpu(place.device, call) for call in calls]


def _on_cpu(calls: list[Callable[[], Any]]) -> list[Bytes]:
    mark = "spillway: measured call"
    with torch.autograd.profiler.profile(use_cpu=True, profile_memory=True, use_kineto=True) as profile:
        for call in calls:
            with torch.autograd.profiler.record_function(mark):
                call()
    found: list[Bytes] = []
    before = held = 0
    for event in sorted(profile.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == mark:
            before = held
            found.append(Bytes(0, 0))
        elif event.name() == "[memory]" and found:
            held += event.nbytes()
            found[-1] = Bytes(max(found[-1].peak, held - before), held - before)
    return found


def _on_gpu(device: torch.device, call: Callable[[], Any]) -> Bytes:
    """PyTorch's allocator holds more than it hands out: blocks of other sizes that it keeps, and the ends of its segments. This is
    counted as an eighth of what it hands out and one segment."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    held = torch.cuda.memory_allocated(device) - before
    return Bytes(peak + peak // 8 + _SEGMENT, max(0, held + held // 8))
