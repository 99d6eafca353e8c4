"""Models whose blocks are written in Python, for Trainer."""

from __future__ import annotations

import contextlib
import signal
import threading

from ._core import Batch, Parameter, Tensor
from . import _core
from .errors import UsageTypeError

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping, Optional, Sequence, Union

    Blocks = Union["Block", Sequence["Block"], Mapping[str, "Block"]]


class Block:
    """A part of a model, like PyTorch's nn.Module: a subclass makes its Parameters in __init__ and computes in forward().

    class Hidden(spillway.Block):
        def __init__(self):
            self.weight = spillway.Parameter((8, 2), std=1.0)
            self.bias = spillway.Parameter((8,), "zeros")

        def forward(self, x, batch):
            return spillway.tanh(spillway.linear(batch["question"], self.weight, self.bias))

    Parameters may also be in lists, tuples, dicts and Blocks among its attributes. A Trainer keeps weights, gradients and optimizer state of
    a block where they fit, and only what backward needs of its activations; the smaller the blocks, the less memory they need at a time.
    """

    def forward(self, x: Optional[Tensor], batch: Batch) -> Tensor:
        """Computes the output [rows, ...] from the output `x` of the block before (None in the first block) and the batch. The last block
        returns batch.loss(losses) or batch.cross_entropy(logits).

        It must compute the same whenever it is called with the same values: it may run again before backward, on threads, and before the
        first step on tensors without values. Its tensors end with it.
        """
        raise NotImplementedError(f"{type(self).__name__}: expected a block to define forward(self, x, batch)")

    def __call__(self, *inputs: Any) -> Tensor:
        """Calls forward(), for blocks inside of blocks."""
        return self.forward(*inputs)


def is_own(model: Any) -> bool:
    """Whether `model` is made of Blocks, and not a name."""
    if isinstance(model, Block):
        return True
    if isinstance(model, dict):
        model = list(model.values())
    return isinstance(model, (list, tuple)) and any(isinstance(one, Block) for one in model)


def _named_blocks(model: Blocks) -> Iterator[tuple[str, Block]]:
    if isinstance(model, Block):
        model = [model]
    for name, block in model.items() if isinstance(model, dict) else enumerate(model):
        if not isinstance(block, Block):
            raise UsageTypeError(f"model: expected Blocks, got {type(block).__name__} as block {name}")
        yield str(name), block


def _parameters(value: Any, name: str, found: dict[int, tuple[str, Parameter]], visited: set[int]) -> None:
    if isinstance(value, Parameter):
        found.setdefault(id(value), (name, value))
        return
    if isinstance(value, Block):
        parts: Any = vars(value).items()
    elif isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    else:
        return
    if id(value) in visited:
        return
    visited.add(id(value))
    for part, inner in parts:
        _parameters(inner, f"{name}.{part}", found, visited)


def checked_samples(data: Any, argument: str) -> Any:
    """Returns `data` if it may be samples, or None."""
    if data is None or isinstance(data, dict):
        return data
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise UsageTypeError(f"{argument}: expected a sequence of dictionaries (an object with len() and [index], such as a list or a map-style "
                             f"dataset of PyTorch), or a dictionary of arrays, got {type(data).__name__}")
    return data


def training(model: Blocks, name: str, arguments: dict[str, Any], data: Any, validation_data: Any) -> _core.Training:
    """Makes the training of a model of one's own."""
    blocks = []
    names: dict[int, str] = {}
    for block_name, block in _named_blocks(model):
        found: dict[int, tuple[str, Parameter]] = {}
        _parameters(block, block_name, found, set())
        parameters = [(names.setdefault(key, own), parameter) for key, (own, parameter) in found.items()]
        blocks.append((block_name, block.forward, parameters))
    return _core._own_training(arguments, name, blocks, data, validation_data)


@contextlib.contextmanager
def interrupts_between_blocks() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt after a block's forward, not in it, so that the run can finish its step and save."""
    raises = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(raises):
        yield
        return

    def hear(number: int, frame: Any) -> None:
        if not _core._keep_interrupt():
            raises(number, frame)

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, raises)
