"""Models whose blocks are written in Python, for Trainer."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading

from . import _core
from ._core import Batch, Tensor
from .errors import UsageTypeError
from .nn import Module, ModuleList, Sequential

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

    Blocks = Union[Module, Sequence[Module], Mapping[str, Module]]


def is_of_torch(model: Any) -> bool:
    """Whether `model` is a module of PyTorch or a list or dict of them. PyTorch is not imported for this."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return False
    parts = list(model.values()) if isinstance(model, dict) else model if isinstance(model, (list, tuple)) else [model]
    return any(isinstance(one, torch.nn.Module) for one in parts)


def is_own(model: Any) -> bool:
    """Whether `model` is made of Modules, and not a name."""
    if isinstance(model, Module):
        return True
    if isinstance(model, dict):
        model = list(model.values())
    return isinstance(model, (list, tuple)) and any(isinstance(one, Module) for one in model)


def _named_blocks(model: Blocks) -> Iterator[tuple[str, Module]]:
    if isinstance(model, (Sequential, ModuleList)):
        model = dict(model.named_children())
    elif isinstance(model, Module):
        model = [model]
    for name, block in model.items() if isinstance(model, dict) else enumerate(model):
        if not isinstance(block, Module):
            raise UsageTypeError(f"model: expected Modules, got {type(block).__name__} as block {name}")
        yield str(name), block


def _forward(block: Module) -> Callable[[Optional[Tensor], Batch], Tensor]:
    """Returns forward(x, batch) of a block, whose own forward may take x alone."""
    import inspect

    kinds = inspect.Parameter
    given = [one.kind for one in inspect.signature(block.forward).parameters.values()]
    positional = sum(kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD) for kind in given)
    if positional > 1 or kinds.VAR_POSITIONAL in given:
        return block
    return lambda x, batch: block(x)


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
        parameters = [(names.setdefault(id(parameter), own), parameter) for own, parameter in block.named_parameters(block_name)]
        blocks.append((block_name, _forward(block), parameters))
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
