"""Names the block and the module in which a model of PyTorch fails, and finds out what a forward does that a block must not do."""

from __future__ import annotations

import contextlib
import gc

import torch

from ..errors import UsageError

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

_LONGEST = 600  # characters of a message of PyTorch's C++ code
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@contextlib.contextmanager
def named(what: str, block: str, model: torch.nn.Module) -> Iterator[None]:
    """Adds to an exception where it came from: "forward of block `model.layers.1`, module model.layers.1.mlp (MLP)"."""
    try:
        yield
    except Exception as error:
        _shorten(error)
        _add_note(error, f"{what} of block `{block}`{_module_of(error, model)}")
        raise


def _module_of(error: Exception, model: torch.nn.Module) -> str:
    """The innermost module of `model` whose code was running."""
    names = {id(module): name for name, module in model.named_modules() if name}
    found, trace = "", error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_locals.get("self")
        if id(module) in names and isinstance(module, torch.nn.Module):
            found = f", module {names[id(module)]} ({type(module).__name__})"
        trace = trace.tb_next
    return found


def _add_note(error: Exception, note: str) -> None:
    if note in getattr(error, "__notes__", []):
        return
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):  # Python 3.10
        error.args = (f"{error.args[0]}\n{note}", *error.args[1:])


def _shorten(error: Exception) -> None:
    """PyTorch's dispatcher lists in its messages, over pages, all backends and where they were registered: keeps the first sentence."""
    text = str(error)
    if isinstance(error, RuntimeError) and len(text) > _LONGEST and len(error.args) == 1:
        first = text.split("\n", 1)[0].split(". ", 1)[0]
        error.args = (f"{first[:_LONGEST]} …",)


class _Absent(torch.nn.Parameter):
    """Stands for a weight while it is elsewhere. It has a shape and a type, and cannot be computed with: PyTorch itself would give garbage
    for some operations of tensors on the CPU and on the meta device."""

    _ALLOWED = frozenset(("__get__", "__repr__", "__hash__", "__len__", "size", "dim", "numel", "stride", "element_size", "is_contiguous",
                          "is_floating_point", "is_complex", "empty_like"))

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.__name__ in cls._ALLOWED:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))
        names = [t.weight_name for t in args if isinstance(t, _Absent)]
        raise UsageError("forward: expected weights that are parameters of the block that reads them, got "
                         f"{', '.join(names) or 'another one'}: let a module of the block hold it, and read it as self.name, not from a "
                         "list")


def absent(name: str, parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    made = torch.Tensor._make_subclass(_Absent, torch.empty_like(parameter, device="meta").detach(), parameter.requires_grad)
    made.weight_name = name
    return made


class Lent:
    """Views of the run's memory that a forward is lent: block inputs and weights. They may be elsewhere, or gone, after the call."""

    def __init__(self, block: str, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> None:
        self.block, self.names, self.tensors = block, list(names), list(tensors)
        self._before: list[tuple[int, list[int]]] = []

    def watch(self) -> Lent:
        """Returns itself; check_read_only() then finds changes from now on."""
        self._before = [(t._version, _sample(t)) for t in self.tensors]
        return self

    def check_read_only(self) -> None:
        for name, t, before in zip(self.names, self.tensors, self._before):
            if (t._version, _sample(t)) != before:  # a change through .data does not count as a version
                raise UsageError(f"forward: expected a block that only reads its input and weights, got `{self.block}`, which changes "
                                 f"{name} in place: change a copy")

    def check_returned(self, own: Sequence[torch.Tensor]) -> None:
        """Throws UsageError if someone other than `own` keeps the memory: a hook, for example, that stores what it is given."""
        kept = _kept(self.tensors, own)
        for generation in range(3):
            if kept:  # it may be garbage that refers to itself
                gc.collect(generation)
                kept = _kept(self.tensors, own)
        for i in kept:
            raise UsageError(f"forward: expected that nothing keeps {self.names[i]} of `{self.block}` after the call, got a hook, an "
                             "attribute or a list that does: keep a copy, such as x.detach().clone()")


def made_in_forward(block: str, names: Sequence[str]) -> None:
    raise UsageError(f"forward: expected a model whose modules and parameters are made before its forward, got `{block}`, which makes "
                     f"{', '.join(names) or 'a module'}: make it in __init__")


def check_bound(block: str, places: Sequence[Any], bound: list[torch.Tensor], weights: Sequence[torch.Tensor], count: int) -> None:
    """Throws UsageError if the forward has replaced one of the first `count` weights, which are parameters. The others are statistics,
    and are taken over if it has replaced them. places: (name, tensor, dictionary of a module that holds it, key, what it held before)."""
    of = {id(t): i for i, t in enumerate(bound)}
    for name, t, held, attribute, _ in places:
        i = of[id(t)]
        if i >= count:
            bound[i] = held[attribute]
        elif held.get(attribute) is not t or t.data_ptr() != weights[i].data_ptr():
            raise UsageError(f"forward: expected weights that a forward only reads, got `{block}`, which replaces {name}")


def _sample(t: torch.Tensor) -> list[int]:
    """The bits of a few elements. On a GPU reading them would wait for it."""
    count = t.numel()
    if count == 0 or t.device.type != "cpu":
        return []
    taken = min(4, count)
    some = t.detach().as_strided((taken,), (max(1, (count - 1) // 3),), t.storage_offset())
    return some.view(_INTEGERS[t.element_size()]).tolist()


def _kept(tensors: Sequence[torch.Tensor], own: Sequence[torch.Tensor]) -> list[int]:
    """The positions of `tensors` whose memory others than `tensors` and `own` refer to."""
    users: dict[int, set[int]] = {}
    known = [*tensors, *own]
    known += [t._base for t in known if t._base is not None]  # a view keeps the tensor that it was made from
    for t in known:
        users.setdefault(t.untyped_storage()._cdata, set()).add(id(t))
    found = []
    for i, t in enumerate(tensors):
        storage = t.untyped_storage()
        # the storage's Python object counts as one
        if torch._C._storage_Use_Count(storage._cdata) > len(users[storage._cdata]) + 1:
            found.append(i)
    return found


def disarm(tensors: Sequence[Any]) -> None:
    """Makes tensors stop referring to the run's memory. Their frames live on in a traceback, where a debugger prints them."""
    for t in tensors:
        if isinstance(t, torch.Tensor):
            t.data = torch.full((), float("nan") if t.is_floating_point() else 0, dtype=t.dtype, device=t.device).expand(t.shape)
