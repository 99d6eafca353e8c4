"""Gives the buffers of a model that was made on the meta device their values."""

from __future__ import annotations

import contextlib

import torch

from ._cut_run import swapped, usage_error

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any


def make_buffers_real(model: torch.nn.Module, device: torch.device) -> list[str]:
    """Moves buffers from the meta device to `device`, with the values that the model's own initialization gives them. Returns the names of
    those that it gives none, which are 0 until a checkpoint is loaded. Buffers that no checkpoint holds must get a value."""
    holders = [(module, key) for module in model.modules() for key, buffer in module._buffers.items()
               if buffer is not None and buffer.is_meta]
    if not holders:
        return []
    others = [(holder, key, torch.empty_like(tensor, device="meta"))
              for module in model.modules() for holder in (module._parameters, module._buffers) for key, tensor in holder.items()
              if tensor is not None and not tensor.is_meta]
    for module, key in holders:
        buffer = module._buffers[key]
        module._buffers[key] = torch.empty_like(buffer, device=device).fill_(_unset(buffer.dtype))
    with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []), swapped(others):
        _initialize(model, None)  # which finds everything else on the meta device, so that it changes no weights
    without_value = []
    names = {id(module): name for name, module in model.named_modules()}
    for module, key in holders:
        buffer, unset = module._buffers[key], _unset(module._buffers[key].dtype)
        if bool((buffer != buffer if unset != unset else buffer == unset).any()) and buffer.dtype != torch.bool:
            name = f"{names[id(module)]}.{key}".lstrip(".")
            if key in module._non_persistent_buffers_set:
                raise usage_error(f"model: expected a value for the buffer {name}, which checkpoints do not hold, but it is on the meta "
                                  "device and _init_weights() does not set it: make the model with its buffers on a real device")
            buffer.zero_()
            without_value.append(name)
    return without_value


def _initialize(module: torch.nn.Module, owner: Any) -> None:
    """Initializes the parts of a module, then itself; `owner` is the model of transformers that it is part of."""
    owner = module if hasattr(module, "_init_weights") else owner
    for child in module.children():
        _initialize(child, owner)
    if isinstance(module, torch.nn.modules.batchnorm._NormBase):
        module.reset_running_stats()
    elif owner is not None:
        with contextlib.suppress(Exception):  # what it has not initialized is named by the caller
            owner._init_weights(module)


def _unset(dtype: torch.dtype) -> Any:
    """Returns a value that no initialization gives."""
    if dtype == torch.bool:
        return False
    return float("nan") if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype).max
