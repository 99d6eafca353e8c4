"""Models of PyTorch for spillway.Trainer: their blocks' forward and backward are computed by PyTorch, and everything else by the run."""

from __future__ import annotations

import torch

from .. import _core
from ..errors import UsageError, UsageTypeError
from ._cut import cut
from ._skeleton import Shared

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

_PRECISIONS = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.float16: "fp16"}
_TYPES = {name: dtype for dtype, name in _PRECISIONS.items()}


def training(model: Any, name: str, arguments: dict[str, Any], data: Any, validation_data: Any, loss: Optional[Callable[..., Any]] = None,
             layers: Optional[str] = None, autocast: Optional[torch.dtype] = None) -> _core.Training:
    """Makes the training of a model of PyTorch. The first sample shows how the model is called."""
    def rows(count: int) -> dict[str, torch.Tensor]:
        samples = [_row(data, i % len(data)) for i in range(count)] if not isinstance(data, dict) else None
        if samples is None:
            length = len(next(iter(data.values())))
            return {key: torch.as_tensor(value)[[i % length for i in range(count)]] for key, value in data.items()}
        return {key: torch.stack([s[key] for s in samples]) for key in samples[0]}

    pieces = cut(model, rows(1), layers=layers, loss=loss)
    parameters = dict(pieces.model.named_parameters())
    for own, parameter in parameters.items():
        if not parameter.dtype.is_floating_point:
            raise UsageTypeError(f"model: expected parameters of floating-point numbers, got {parameter.dtype} in {own}: make it a buffer")
    dtype = next(iter(parameters.values())).dtype if parameters else torch.float32
    arguments.setdefault("precision", _PRECISIONS.get(dtype, "fp32"))
    shared = Shared(pieces, rows, _TYPES.get(arguments["precision"], torch.float32), autocast)
    of_ids = {id(m.weight) for m in pieces.model.modules() if isinstance(m, torch.nn.Embedding)}
    specs = {own: (list(p.shape), p.requires_grad, id(p) in of_ids, _values(p)) for own, p in parameters.items()}
    blocks = [(piece.name, [(own, specs[own]) for own in piece.parameters]) for piece in pieces.pieces]
    return _core._torch_training(arguments, name, blocks, shared.skeleton, _weight(pieces.model, loss), data, validation_data)


def _row(data: Any, index: int) -> dict[str, torch.Tensor]:
    sample = data[index]
    if not isinstance(sample, dict):
        raise UsageTypeError(f"data: expected a dictionary of tensors for each sample, got {type(sample).__name__}")
    return {key: torch.as_tensor(value) for key, value in sample.items()}


def _values(parameter: torch.nn.Parameter) -> Callable[[int, int], torch.Tensor]:
    flat = parameter.detach().reshape(-1)

    def values(begin: int, count: int) -> torch.Tensor:
        if flat.is_meta:
            raise UsageError("model: expected a model with weights, got one on the meta device: give `weights`, a folder that has them")
        return flat[begin : begin + count].to("cpu", torch.float64).contiguous()

    return values


def _weight(model: torch.nn.Module, loss: Optional[Callable[..., Any]]) -> str:
    """How the mean losses of micro-batches are weighted in the mean of a step: by the targets that the model's own loss averages over."""
    if loss is not None:
        return "one"
    return "next labels" if "Causal" in type(model).__name__ or "Causal" in str(getattr(model, "loss_type", "")) else "labels"
