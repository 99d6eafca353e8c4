"""Tensors inside of tuples, lists, dictionaries and objects: how the arguments and results of a module are taken apart and put together."""

from __future__ import annotations

import copy
import dataclasses
import enum
import types

import torch

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Optional

    Path = tuple[Any, ...]


@dataclasses.dataclass(slots=True)
class Leaf:
    """Stands for a tensor in a template, which is a copy of a structure without its tensors.

    `key` says which tensor it was. `tensor` is the tensor itself while a model is traced, if it carries no gradient."""

    key: Any
    tensor: Optional[torch.Tensor] = None


def entries(value: Any) -> Optional[dict[Any, Any]]:
    """Returns the parts of a container (a dictionary, list, tuple, or an object with attributes) by key, or None for anything else."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if hasattr(value, "__dict__") and not callable(value) and not isinstance(
            value, (torch.Tensor, torch.nn.Module, types.ModuleType, enum.Enum)):
        return dict(vars(value))
    return None


def mapped(value: Any, change: Callable[[Any], Any], kind: type = torch.Tensor, memo: Optional[dict[int, Any]] = None) -> Any:
    """Returns a copy of `value` and of all containers in it, in which each tensor (or each object of `kind`) is replaced by change(tensor).

    Containers that are the same object stay the same object, also over several calls with the same `memo`."""
    memo = {} if memo is None else memo
    if isinstance(value, kind):
        return change(value)
    parts = entries(value)
    if parts is None:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, tuple):
        new = [mapped(part, change, kind, memo) for part in value]
        if all(one is other for one, other in zip(new, value)):
            return value
        return type(value)(*new) if hasattr(value, "_fields") else tuple(new)
    made = memo[id(value)] = copy.copy(value)
    inside = made if isinstance(made, (dict, list)) else vars(made)
    for key, part in parts.items():
        inside[key] = mapped(part, change, kind, memo)
    return made


def leaves(value: Any, kind: type = torch.Tensor, path: Path = (), seen: Optional[set[int]] = None) -> Iterator[tuple[Path, Any]]:
    """Yields each tensor (or object of `kind`) in `value` with its path."""
    seen = set() if seen is None else seen
    if isinstance(value, kind):
        yield path, value
        return
    parts = entries(value)
    if parts is None or (id(value) in seen and not isinstance(value, tuple)):
        return
    seen.add(id(value))
    for key, part in parts.items():
        yield from leaves(part, kind, path + (key,), seen)


def found(value: Any, path: Path) -> Any:
    """Returns what stands at `path` in `value`."""
    for key in path:
        value = value[key] if isinstance(value, (dict, list, tuple)) else vars(value)[key]
    return value


def placed(value: Any, path: Path, new: Any) -> Any:
    """Returns `value` with `new` at `path`. Dictionaries, lists and objects are changed in place; tuples are made again."""
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(value, tuple):
        parts = list(value)
        parts[key] = placed(parts[key], rest, new)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    inside = value if isinstance(value, (dict, list)) else vars(value)
    inside[key] = placed(inside[key] if rest else None, rest, new)
    return value


def in_container(given: tuple[Any, Any], path: Path) -> bool:
    """Whether `path` leads through an argument in `given` = (args, kwargs) that can be changed in place."""
    return any(not isinstance(found(given, path[:at]), tuple) for at in range(2, len(path)))


def differences(template: Any, value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yields (path, part of the template) wherever the tensors of `template` are not those of `value`, and (path, None) where something
    else differs, which no tensors can make up for."""
    if isinstance(template, Leaf):
        if template.tensor is None or not isinstance(value, torch.Tensor) or not _equal(template.tensor, value):
            yield path, template
        return
    ours, theirs = entries(template), entries(value)
    if ours is None:
        if template is not value and (type(template) is not type(value) or (
                isinstance(template, (bool, int, float, str)) and template != value)):
            yield path, None
        return
    if theirs is None:
        yield path, template if _is_plain(template) else None
        return
    if set(theirs) - set(ours) or (isinstance(template, (list, tuple)) and len(ours) != len(theirs)):
        yield path, None
    for key, part in ours.items():
        if key in theirs:
            yield from differences(part, theirs[key], path + (key,))
        else:
            yield path + (key,), part if _is_plain(part) else None


def _is_plain(template: Any) -> bool:
    """Whether a part that a layer added can be made again: it holds only tensors, texts, truth values and None."""
    parts = entries(template)
    if parts is not None:
        return all(_is_plain(part) for part in parts.values())
    return template is None or isinstance(template, (Leaf, bool, str))


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())
