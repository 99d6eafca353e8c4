"""Modules that hold other modules."""

from __future__ import annotations

from ..errors import UsageTypeError
from .module import Module, is_part

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator, Mapping, Optional


class ModuleList(Module):
    """Modules in a list."""

    def __init__(self, modules: Optional[Iterable[Any]] = None) -> None:
        self.extend(modules or ())

    def append(self, module: Any) -> ModuleList:
        if not is_part(module):
            raise UsageTypeError(f"{type(self).__name__}: expected a Module, got {type(module).__name__}")
        setattr(self, str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Any]) -> ModuleList:
        for module in modules:
            self.append(module)
        return self

    def _all(self) -> list[Any]:
        return [part for name, part in vars(self).items() if name.isdigit()]

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all())

    def __getitem__(self, index: Any) -> Any:
        found = self._all()[index]
        return type(self)(found) if isinstance(index, slice) and type(self) is ModuleList else found

    def __setitem__(self, index: int, module: Any) -> None:
        setattr(self, str(range(len(self))[index]), module)


class Sequential(ModuleList):
    """Modules that compute one after the other; Sequential(a, b), or Sequential({"name": a})."""

    def __init__(self, *modules: Any) -> None:
        if len(modules) == 1 and isinstance(modules[0], dict):
            for name, module in modules[0].items():
                setattr(self, name, module)
        else:
            self.extend(modules)

    def _all(self) -> list[Any]:
        return list(self.children())

    def __getitem__(self, index: Any) -> Any:
        return Sequential(*self._all()[index]) if isinstance(index, slice) else self._all()[index]

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Optional[Mapping[str, Any]] = None) -> None:
        for name, module in (modules or {}).items():
            self[name] = module

    def __setitem__(self, name: str, module: Any) -> None:
        setattr(self, name, module)

    def __getitem__(self, name: str) -> Any:
        return dict(self.named_children())[name]

    def keys(self) -> list[str]:
        return [name for name, _ in self.named_children()]

    def items(self) -> Iterator[tuple[str, Any]]:
        return self.named_children()

    def values(self) -> Iterator[Any]:
        return self.children()

    def __contains__(self, name: str) -> bool:
        return name in self.keys()

    def __len__(self) -> int:
        return len(self.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())
