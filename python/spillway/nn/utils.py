"""What PyTorch has in torch.nn.utils for a training loop."""

from __future__ import annotations

from .. import _core
from .._core import Tensor
from ..errors import UsageError

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any


def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
    """Scales the gradients in place so that their norm together is at most max_norm, and returns the norm before."""
    if norm_type != 2:
        raise UsageError(f"norm_type: expected 2, got {norm_type}")
    if hasattr(parameters, "parameters"):
        parameters = parameters.parameters()
    elif isinstance(parameters, Tensor):
        parameters = [parameters]
    norm = _core._clip_grad_norm(parameters, max_norm)
    if error_if_nonfinite and not norm < float("inf"):
        raise UsageError(f"clip_grad_norm_: expected gradients with a finite norm, got {norm}")
    return _core.tensor(norm, dtype="f64")


def clear(parameters: Any, set_to_none: bool) -> None:
    """Clears gradients: they become None."""
    if set_to_none is not True:
        raise UsageError(f"set_to_none: expected True, got {set_to_none}: a cleared gradient is None, as PyTorch's is by default")
    for parameter in parameters:
        parameter.grad = None
