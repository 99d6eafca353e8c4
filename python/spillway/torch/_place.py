"""Where PyTorch computes the blocks of a run: on the CPU or on a GPU."""

from __future__ import annotations

import contextlib

import torch

from ..errors import UsageError

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Callable, ContextManager, Optional


class Place:
    """`gpu` is the index of a GPU, or None for the CPU. Raises UsageError if PyTorch cannot use that GPU."""

    def __init__(self, gpu: Optional[int]) -> None:
        if gpu is not None and gpu >= torch.cuda.device_count():
            raise UsageError(f"[device] expected a PyTorch that can use GPU {gpu}, on which the run computes, got torch "
                             f"{torch.__version__}, which finds {torch.cuda.device_count()} GPUs: install PyTorch for CUDA, or give "
                             "device=\"cpu\"")
        self.gpu = gpu
        self.device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu)
        self.generators = [] if gpu is None else [gpu]
        """The GPUs whose generators of random numbers the blocks draw from, beside the CPU's."""

    def on(self, queue: int) -> ContextManager[object]:
        """While it lasts, PyTorch puts its work on this queue of the GPU, a cudaStream_t. It is the queue on which the run computes, so the
        work of both is done in the order in which it was put there, and the host waits for none of it."""
        if self.device.type == "cpu":
            return contextlib.nullcontext()
        return torch.cuda.stream(torch.cuda.ExternalStream(queue, self.device))

    def random_states(self) -> list[torch.Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self.generators)]

    def allocated(self) -> int:
        """The bytes of the GPU that PyTorch has handed out; 0 for the CPU, where it does not count them."""
        return 0 if self.device.type == "cpu" else torch.cuda.memory_allocated(self.device)

    def release(self) -> None:
        """Gives back to the GPU what PyTorch keeps for later."""
        if self.device.type == "cuda":
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()

    def limit(self, size: int) -> None:
        """Makes PyTorch refuse to take `size` bytes more of the GPU than it holds now."""
        if self.device.type == "cuda":
            total = torch.cuda.get_device_properties(self.device).total_memory
            most = min(total, torch.cuda.memory_reserved(self.device) + size)
            torch.cuda.set_per_process_memory_fraction(most / total, self.device)

    def unlimited(self) -> Callable[[], None]:
        """Returns the function that undoes limit(): PyTorch may again take as much as it may now."""
        if self.device.type == "cpu":
            return lambda: None
        share = getattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)(self.device)  # older PyTorch cannot tell
        return lambda: torch.cuda.set_per_process_memory_fraction(share, self.device)
