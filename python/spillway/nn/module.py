"""Module, the base class of all modules."""

from __future__ import annotations

from .. import _core
from .._core import Parameter, Tensor
from ..errors import UsageError, UsageKeyError, UsageTypeError
from . import utils

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping, Optional


def _copied(values: Any, dtype: str, requires_grad: bool) -> Parameter:
    return Parameter(_core.tensor(values, dtype=dtype), requires_grad)


def _reduced(parameter: Parameter, protocol: Any) -> tuple:
    values, dtype = parameter.detach(), str(parameter.dtype)
    return _copied, ((values.to("f32") if dtype == "bf16" else values).numpy().copy(), dtype, parameter.requires_grad)


setattr(Parameter, "__reduce_ex__", _reduced)  # copy.deepcopy() and pickle call this method


class _Handle:
    """Removes a hook again."""

    def __init__(self, hooks: dict[int, Any], key: int) -> None:
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        self._hooks.pop(self._key, None)


def is_part(value: Any) -> bool:
    return isinstance(value, (Module, _core.Model))


class Module:
    """A part of a model, as in PyTorch: a subclass makes its Parameters and Modules in __init__ and computes in forward().

    class Hidden(spillway.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = spillway.nn.Linear(2, 8)

        def forward(self, x):
            return spillway.tanh(self.linear(x))

    In a loop of your own you call it: y = module(x). As one of the blocks of Trainer(model=[...]) its forward takes (x, batch), or x alone:
    the output [rows, ...] of the block before (None in the first block), and the batch. The last block returns batch.loss(losses) or
    batch.cross_entropy(logits). A forward in a Trainer must compute the same whenever it is called with the same values: it may run again
    before backward, on threads, and before the first step on tensors without values. Its tensors end with it.

    Parameters may also be in lists, tuples and dicts among the attributes. A Trainer keeps weights, gradients and optimizer state of a block
    where they fit, and only what backward needs of its activations; the smaller the blocks, the less memory they need at a time.
    """

    training = True

    def forward(self, *inputs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: expected a Module to define forward(self, ...)")

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Calls forward(), and the hooks before and after it."""
        hooks = vars(self)
        for before in tuple(hooks.get("_pre_hooks", {}).values()):
            changed = before(self, inputs)
            if changed is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
        y = self.forward(*inputs, **named)
        for after in tuple(hooks.get("_hooks", {}).values()):
            changed = after(self, inputs, y)
            y = y if changed is None else changed
        return y

    def register_forward_hook(self, hook: Callable[[Module, tuple, Any], Any]) -> _Handle:
        """hook(module, inputs, output) is called after forward(); unless it returns None, its result is the output."""
        return self._register("_hooks", hook)

    def register_forward_pre_hook(self, hook: Callable[[Module, tuple], Any]) -> _Handle:
        """hook(module, inputs) is called before forward(); unless it returns None, its result is the input."""
        return self._register("_pre_hooks", hook)

    def _register(self, kind: str, hook: Any) -> _Handle:
        hooks = vars(self).setdefault(kind, {})
        key = max(hooks, default=-1) + 1
        hooks[key] = hook
        return _Handle(hooks, key)

    def _parts(self) -> Iterator[tuple[str, Any]]:
        """The Parameters and Modules among the attributes, in the order in which they were set, those in lists, tuples and dicts as well."""
        visited: set[int] = set()

        def within(value: Any, name: str) -> Iterator[tuple[str, Any]]:
            if isinstance(value, Parameter) or is_part(value):
                yield name, value
                return
            if not isinstance(value, (dict, list, tuple)) or id(value) in visited:
                return
            visited.add(id(value))
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                yield from within(inner, f"{name}.{key}")

        for name, value in vars(self).items():
            if name not in ("_hooks", "_pre_hooks"):
                yield from within(value, name)

    def named_modules(self, memo: Optional[set] = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """This module and all modules in it, each once."""
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        memo.add(id(self))
        yield prefix, self
        for name, part in self._parts():
            name = f"{prefix}.{name}" if prefix else name
            if isinstance(part, Module):
                yield from part.named_modules(memo, name)
            elif not isinstance(part, Parameter) and id(part) not in memo:
                memo.add(id(part))
                yield name, part

    def modules(self) -> Iterator[Any]:
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Any]]:
        return ((name, part) for name, part in self._parts() if not isinstance(part, Parameter))

    def children(self) -> Iterator[Any]:
        return (part for _, part in self.named_children())

    def _all_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """All parameters under all their names."""
        for name, part in self._parts():
            name = f"{prefix}.{name}" if prefix else name
            if isinstance(part, Parameter):
                yield name, part
            elif isinstance(part, Module):
                yield from part._all_parameters(name)
            else:
                yield from ((f"{name}.{inner}", parameter) for inner, parameter in part.named_parameters())

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """All parameters by name; a shared one once, under its first name."""
        if not recurse:
            own = [(name, part) for name, part in self._parts() if isinstance(part, Parameter)]
        found: set[int] = set()
        for name, parameter in self._all_parameters(prefix) if recurse else own:
            if not remove_duplicate or not isinstance(parameter, Parameter) or id(parameter) not in found:
                found.add(id(parameter))
                yield name, parameter

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def state_dict(self) -> dict[str, Tensor]:
        """All parameters by name, on their own memory; a shared one under each of its names, as in PyTorch."""
        return {name: parameter.detach() for name, parameter in self._all_parameters()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> tuple[list[str], list[str]]:
        """Copies the values of `state_dict`, whose arrays may be PyTorch's or NumPy's, and returns the names that were missing and those that
        were not expected; strict=True refuses both."""
        own = dict(self._all_parameters())
        missing, unexpected = check_names(type(self).__name__, own, state_dict, strict)
        with _core._NoGrad():
            for name, parameter in own.items():
                if name in state_dict:
                    values = state_dict[name]
                    values = values.detach() if hasattr(values, "detach") else values
                    if tuple(values.shape) != tuple(parameter.shape):
                        raise UsageError(f"load_state_dict: {name}: expected shape {tuple(parameter.shape)}, got {tuple(values.shape)}")
                    parameter.copy_(values)
        return missing, unexpected

    def train(self, mode: bool = True) -> Module:
        """Sets `training` of this module and all in it, which Dropout reads."""
        if not isinstance(mode, bool):
            raise UsageTypeError(f"mode: expected a bool, got {type(mode).__name__}")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        utils.clear(self.parameters(), set_to_none)

    def to(self, *what: Any, dtype: Any = None, device: Any = None) -> Module:
        """Changes type or device of all parameters: to("f64"), to("cuda"). Make optimizers afterwards."""
        for wish in (*what, dtype, device):
            if wish is None:
                continue
            for part in self.modules():
                if isinstance(part, _core.Model):
                    part.to(wish)
                    continue
                for parameter in (one for _, one in part._parts() if isinstance(one, Parameter)):
                    parameter._set_value(parameter.detach().to(wish))
        return self

    def cuda(self, index: int = 0) -> Module:
        return self.to(f"cuda:{index}")

    def cpu(self) -> Module:
        return self.to("cpu")

    def float(self) -> Module:
        return self.to("f32")

    def double(self) -> Module:
        return self.to("f64")

    def bfloat16(self) -> Module:
        return self.to("bf16")

    def half(self) -> Module:
        return self.to("f16")

    def apply(self, function: Callable[[Any], Any]) -> Module:
        """Calls function(module) for each module in this one, and then for this one."""
        for module in reversed(list(self.modules())):
            function(module)
        return self

    def register_parameter(self, name: str, param: Optional[Parameter]) -> None:
        setattr(self, name, param)

    def add_module(self, name: str, module: Any) -> None:
        setattr(self, name, module)

    register_module = add_module

    def register_buffer(self, name: str, tensor: Optional[Tensor], persistent: bool = True) -> None:
        """Sets a constant tensor. It is not part of state_dict(): only persistent=False is supported."""
        if persistent:
            raise UsageError(f"register_buffer: expected persistent=False, because state_dict() has parameters only: {name}")
        setattr(self, name, tensor)

    def extra_repr(self) -> str:
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): " + repr(part).replace("\n", "\n  ") for name, part in self.named_children()]
        kind, extra = type(self).__name__, self.extra_repr()
        return f"{kind}({extra})" if not lines else f"{kind}({extra}\n  " + "\n  ".join(lines) + "\n)"


def check_names(what: str, own: Any, state: Any, strict: bool) -> tuple[list[str], list[str]]:
    """Returns the names that are missing in `state` and those that it has beyond `own`; refuses both if strict."""
    if not hasattr(state, "keys") or not hasattr(state, "__getitem__"):
        raise UsageTypeError(f"load_state_dict: expected a dictionary of tensors by name, got {type(state).__name__}")
    missing = [name for name in own if name not in state]
    unexpected = [str(name) for name in state.keys() if name not in own]

    def some(names: list[str]) -> str:
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

    if strict and missing:
        raise UsageKeyError(f"load_state_dict: {what}: expected all parameters, but `state_dict` has none named {some(missing)}: give them, or "
                            "strict=False to keep their values")
    if strict and unexpected:
        raise UsageKeyError(f"load_state_dict: {what}: expected no other names than those of the parameters, got {some(unexpected)}: leave them "
                            "out, or give strict=False")
    return missing, unexpected
