"""Measures how much memory PyTorch takes."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise PyTorch's profiler complains on stderr where there is no GPU

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable


@dataclass
class Bytes:
    """What a call allocated beyond what PyTorch held before it."""

    peak: int
    """the most at any time of the call"""
    held: int
    """what was still allocated at its end"""


def bytes_of(calls: list[Callable[[], Any]]) -> list[Bytes]:
    """Runs the calls one after the other and measures each. What a call needs once, such as a library's tables, is not measured if the caller
    has run it before."""
    if torch.cuda.is_initialized():
        return [_on_gpu(call) for call in calls]
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


def _on_gpu(call: Callable[[], Any]) -> Bytes:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return Bytes(torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before)
