"""What makes the functions and Tensor like PyTorch's where C++ cannot: words for wrong arguments, and no_grad as a decorator."""

from __future__ import annotations

import functools

from . import _core
from .errors import UsageTypeError

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])

class no_grad:
    """In a block `with spillway.no_grad(): ...`, and in a function with the decorator @spillway.no_grad(), no operation of this thread is
    recorded for backward()."""

    def __new__(cls, function: Optional[Callable[..., Any]] = None) -> Any:
        self = object.__new__(cls)
        if function is None:
            return self
        self.__init__()
        return self(function)  # used as a decorator without parentheses

    def __init__(self, function: None = None) -> None:
        self._block = _core._NoGrad()

    def __enter__(self) -> no_grad:
        self._block.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._block.__exit__(*error)

    def __call__(self, function: Function) -> Function:
        if not callable(function):
            raise UsageTypeError(f"[no_grad] expected a function to decorate, got {type(function).__name__}")

        @functools.wraps(function)
        def silent(*args: Any, **named: Any) -> Any:
            with _core._NoGrad():
                return function(*args, **named)

        return silent  # type: ignore[return-value]

    def __reduce_ex__(self, protocol: object) -> Any:
        return self._block.__reduce_ex__(protocol)


def tensor_of_bytes(values: bytes, dtype: str, shape: tuple[int, ...], requires_grad: bool) -> _core.Tensor:
    """Makes a tensor again of what pickle and copy.deepcopy keep of it."""
    return _core._tensor_of_bytes(values, dtype, shape, requires_grad)


def _words(name: str, nanobinds: str) -> str:
    """Says a mismatch of arguments as the other errors do: what was expected, and what came."""
    lines = [line.strip() for line in nanobinds.splitlines()]
    calls = [line.split(". ", 1)[1] for line in lines if line[:1].isdigit() and ". " in line]
    came = next((line.partition(": ")[2] for line in lines if line.startswith("Invoked with types")), "")
    return f"[{name}] expected {' or '.join(calls)}, got arguments of the types ({came})".replace("spillway._core.", "")


def _worded(function: Any) -> Any:
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except TypeError as error:
            if "incompatible function arguments" not in str(error):
                raise
            raise UsageTypeError(_words(name, str(error))) from None

    return call


def _word_all() -> None:
    """Makes the module's functions and methods raise this library's errors where nanobind finds no function for the arguments."""
    for place in [_core, *(one for one in vars(_core).values() if isinstance(one, type))]:
        for name, function in list(vars(place).items()):
            if type(function).__name__ in ("nb_func", "nb_method") and not name.startswith("_"):
                setattr(place, name, _worded(function))


_word_all()
