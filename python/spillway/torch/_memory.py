"""Measures how much memory PyTorch takes."""

from __future__ import annotations

import torch

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable


def peak_of(call: Callable[[], Any]) -> tuple[Any, int, int]:
    """Runs call(), and returns its result, the peak of the bytes that PyTorch allocated in it beyond what it had before, and the bytes that
    are still allocated at its end."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = call()
        torch.cuda.synchronize()
        return result, torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before
    with torch.autograd.profiler.profile(use_cpu=True, profile_memory=True, use_kineto=True) as profile:
        result = call()
    held = peak = 0
    events = [e for e in profile.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return result, peak, max(held, 0)
