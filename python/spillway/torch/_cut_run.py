"""Runs one block of a model: a few calls of its layers, or a part of its own forward."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect

import torch

from ._cut_tree import Leaf, found, in_container, leaves, mapped, placed

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Optional

    from ._cut_tree import Path

    Batch = dict[str, torch.Tensor]
    Handler = Callable[[torch.nn.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@dataclasses.dataclass
class Call:
    """One call of a layer by the model's forward. Numbers are those of the tensors that travel between blocks."""

    module: torch.nn.Module
    name: str
    places: list[tuple[Path, Any]] = dataclasses.field(default_factory=list)  # where tensors that travel stand in (args, kwargs)
    result: Any = None                                                        # template of what the layer returns
    left: list[tuple[Path, int]] = dataclasses.field(default_factory=list)    # what the layer puts into its arguments
    hooked: list[tuple[torch.nn.Module, int, Any]] = dataclasses.field(default_factory=list)  # modules with hooks: n-th call, template
    read_outside: list[tuple[Path, int]] = dataclasses.field(default_factory=list)            # arguments that the model itself reads later
    changed: list[Path] = dataclasses.field(default_factory=list)             # arguments that the layer changes in place


class Stop(BaseException):
    """Ends the model's forward when a block's results are known. Not an Exception, so that no model catches it."""


class Arguments:
    """The arguments that the layers are called with for the last batch. A copy of a model has none."""

    def __init__(self) -> None:
        self.key: Any = None
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __deepcopy__(self, memo: Any) -> Arguments:
        return Arguments()


@contextlib.contextmanager
def patched(modules: Any, handler: Handler) -> Iterator[None]:
    """While it lasts, a call of one of `modules` runs handler(module, forward, args, kwargs) in place of its forward."""
    before = []
    try:
        for module in modules:
            before.append((module, module.__dict__.get("forward")))
            module.__dict__["forward"] = functools.partial(_handle, handler, module, module.forward)
        yield
    finally:
        for module, forward in before:
            if forward is None:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = forward


def _handle(handler: Handler, module: torch.nn.Module, forward: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return handler(module, forward, args, kwargs)


def call_with_batch(module: torch.nn.Module, batch: Batch) -> Any:
    """Calls `module` with the entries of the batch that its forward names, or with the first one if it names none. A model of transformers
    keeps no cache."""
    names = inspect.signature(module.forward).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in names.values())
    given = {name: value for name, value in batch.items() if takes_all or name in names}
    if not given:
        return module(next(iter(batch.values())))
    config = getattr(module, "config", None)
    if hasattr(config, "get_text_config") and (takes_all or "use_cache" in names) and hasattr(config.get_text_config(), "use_cache"):
        given.setdefault("use_cache", False)
    return module(**given)


def usage_error(message: str) -> Exception:
    from ..errors import UsageError

    return UsageError(message)


def loss_of(outputs: Any, batch: Batch, loss: Optional[Callable[[Any, Batch], torch.Tensor]]) -> torch.Tensor:
    """Returns the loss: `loss(outputs, batch)`, or what the model computed."""
    if loss is not None:
        result, source = loss(outputs, batch), "loss(output, batch)"
    else:
        result = outputs.get("loss") if isinstance(outputs, dict) else getattr(outputs, "loss", outputs)
        source = "model(**batch).loss"
    if not isinstance(result, torch.Tensor) or result.numel() != 1:
        got = f"a tensor of shape {tuple(result.shape)}" if isinstance(result, torch.Tensor) else type(result).__name__
        raise usage_error(f"loss: expected a tensor with one element from {source}, got {got}: "
                          "give labels in the batch, or Trainer(loss=a function of (output, batch))")
    return result.reshape(())


@contextlib.contextmanager
def swapped(slots: Any) -> Iterator[None]:
    """While it lasts, (dictionary, key, tensor) of `slots` hold other tensors."""
    before = []
    try:
        for holder, key, tensor in slots:
            before.append((holder, key, holder[key]))
            holder[key] = tensor
        yield
    finally:
        for holder, key, tensor in reversed(before):
            holder[key] = tensor


def _on_meta(module: torch.nn.Module) -> Any:
    for one in module.modules():
        for holder in (one._parameters, one._buffers):
            for key, tensor in holder.items():
                if tensor is not None:
                    yield holder, key, torch.empty_like(tensor, device="meta")


def device_of(batch: Batch) -> torch.device:
    return next((value.device for _, value in leaves(batch)), torch.device("cpu"))


class _RandomState:
    """The state of PyTorch's generators, so that what a block runs beside its own work draws no random numbers."""

    def __init__(self, device: torch.device, draws: bool) -> None:
        self.device = device if device.type == "cuda" and draws else None
        self.cpu = torch.get_rng_state() if draws else None
        self.cuda = torch.cuda.get_rng_state(device) if self.device else None

    def restore(self) -> None:
        if self.cpu is not None:
            torch.set_rng_state(self.cpu)
        if self.device:
            torch.cuda.set_rng_state(self.cuda, self.device)


class Skeleton:
    """A model of which blocks are run. `layers` are the modules between which it may be cut."""

    def __init__(self, model: torch.nn.Module, layers: list[torch.nn.Module], loss: Optional[Callable[..., Any]]) -> None:
        self.model, self.loss_function = model, loss
        self.layers = list(dict.fromkeys(layers))
        self.calls: list[Call] = []
        self.alive: list[list[int]] = []  # the tensors that travel into call number i, and after the last call
        inside = {module for layer in self.layers for module in layer.modules()}
        around = [module for module in model.modules() if module not in inside]
        self.holders = {module for module in around if any(part in inside for part in module.modules())}
        self.owners = [module for module in around if module not in self.holders and any(
            parameter is not None for parameter in module._parameters.values())]
        first = {id(parameter): name for name, parameter in model.named_parameters()}
        self.outside = [(module, key, first[id(parameter)], parameter.shape, parameter.dtype)
                        for module in around for key, parameter in module._parameters.items() if parameter is not None]
        self.needs_values: set[torch.nn.Module] = set()  # modules whose result has no shape without their arguments' values
        self.copies_containers = False
        self.draws = True  # whether the model may draw random numbers; the generators are the whole process's, so no other thread must then
        self.arguments = Arguments()

    def loss(self, batch: Batch) -> torch.Tensor:
        return loss_of(call_with_batch(self.model, batch), batch, self.loss_function)

    def unbound(self, bound: set[str], device: torch.device) -> Any:
        """Returns slots for swapped() that give parameters outside of layers, other than `bound`, zeros that take no memory."""
        return [(module._parameters, key, torch.zeros((), dtype=dtype, device=device).expand(shape))
                for module, key, name, shape, dtype in self.outside if name not in bound]

    def arguments_of(self, batch: Batch) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Returns (args, kwargs) of each call, without what travels. Those of the last batch are kept."""
        key = (batch, [(name, value, getattr(value, "_version", 0)) for name, value in batch.items()])
        kept = self.arguments.key
        if kept is None or kept[0] is not batch or len(kept[1]) != len(key[1]) or any(
                one[0] != other[0] or one[1] is not other[1] or one[2] != other[2] for one, other in zip(kept[1], key[1])):
            self.arguments.key = None
            self.arguments.calls = []
            with torch.no_grad():
                self.arguments.calls = Pass(self, len(self.calls), len(self.calls), set(), batch).recorded()
            self.arguments.key = key
        return self.arguments.calls


class Block:
    """Runs the calls from `start` to before `end`. -1 is what stands before the first call, and one more than the number of calls what
    stands after the last one."""

    def __init__(self, skeleton: Skeleton, start: int, end: int, parameters: list[str], direct: bool) -> None:
        self.skeleton, self.start, self.end, self.bound, self.direct = skeleton, start, end, set(parameters), direct

    def __call__(self, carried: tuple[torch.Tensor, ...], batch: Batch) -> tuple[torch.Tensor, ...]:
        names = self.skeleton.alive[self.start] if self.start >= 0 else []
        env = dict(zip(names, carried))
        if self.direct:
            return self._direct(env, batch)
        return Pass(self.skeleton, self.start, self.end, self.bound, batch, env).result()

    def _direct(self, env: dict[int, torch.Tensor], batch: Batch) -> tuple[torch.Tensor, ...]:
        """Calls the layers themselves, with arguments that are kept for the batch."""
        skeleton, memo = self.skeleton, {}
        arguments = skeleton.arguments_of(batch)
        for at in range(self.start, self.end):
            call, given = skeleton.calls[at], arguments[at]
            if skeleton.copies_containers:
                given = mapped(given, lambda tensor: tensor, memo=memo)
            args, kwargs = substituted(call, (given[0], dict(given[1])), env, at == self.start)
            with _Hooked(call, env):
                result = call.module(*args, **kwargs)
            collect(call, (args, kwargs), result, env)
        return tuple(env[name] for name in skeleton.alive[self.end])


def substituted(call: Call, given: tuple[Any, Any], env: dict[int, torch.Tensor], first: bool) -> tuple[Any, Any]:
    """Returns `given` = (args, kwargs) with the tensors that travel. In the `first` call of a block they are also put into containers
    that layers share; in later ones the layers before have done so themselves."""
    for path, template in call.places:
        names = [leaf.key for _, leaf in leaves(template, Leaf)]
        if isinstance(template, Leaf) and template.key not in env:
            continue
        if any(name not in env for name in names) and not (first and any(name in env for name in names)):
            continue
        given = placed(given, path, mapped(template, lambda leaf: env.get(leaf.key), Leaf))
    for path in call.changed:
        given = placed(given, path, found(given, path).clone())
    return given


def collect(call: Call, given: tuple[Any, Any], result: Any, env: dict[int, torch.Tensor]) -> None:
    """Puts the tensors that a call has made, and that travel, into `env`."""
    for path, leaf in leaves(call.result, Leaf):
        if leaf.key is not None and leaf.key not in env:
            env[leaf.key] = found(result, path)
    for path, name in call.left:
        if name not in env:
            env[name] = found(given, path)


class _Hooked:
    """Keeps what modules with hooks inside of a layer return, where it is used after the layers."""

    def __init__(self, call: Call, env: dict[int, torch.Tensor]) -> None:
        self.call, self.env, self.counts = call, env, {}
        self.patch = patched(dict.fromkeys(module for module, _, _ in call.hooked), self._run)

    def _run(self, module: torch.nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = forward(*args, **kwargs)
        count = self.counts[module] = self.counts.get(module, -1) + 1
        for other, number, template in self.call.hooked:
            if other is module and number == count:
                for path, leaf in leaves(template, Leaf):
                    if leaf.key is not None:
                        self.env[leaf.key] = found(result, path)
        return result

    def __enter__(self) -> None:
        self.patch.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.patch.__exit__(*error)


class Pass:
    """One run of the model's own forward for a block: layers before it hand on what they are given, its own layers are run, and the
    forward ends when everything that travels on is known."""

    def __init__(self, skeleton: Skeleton, start: int, end: int, bound: set[str], batch: Batch,
                 env: Optional[dict[int, torch.Tensor]] = None) -> None:
        self.skeleton, self.start, self.end, self.bound, self.batch = skeleton, start, end, bound, batch
        self.env = {} if env is None else env
        self.given = dict(self.env)  # what travelled here, and the model's forward has not yet
        self.gradients = torch.is_grad_enabled()
        self.at = 0
        self.stubs = start >= 0  # whether modules outside of the layers give zeros
        self.on_meta = False
        self.records: Optional[list[tuple[tuple[Any, ...], dict[str, Any]]]] = None
        self.random = _RandomState(device_of(batch), skeleton.draws)

    def recorded(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Returns (args, kwargs) of each call, without tensors that travel."""
        self.records = []
        self.result()
        self.random.restore()
        return self.records

    def result(self) -> tuple[torch.Tensor, ...]:
        loss, count = self._forward(), len(self.skeleton.calls)
        if loss is not None and (self.end <= count or self.at != count):
            raise usage_error(f"model: expected its forward to call {count} layers for each batch, got {self.at} calls: make the choice "
                              "inside of a layer")
        if loss is not None:
            return (loss,)
        return () if self.records is not None else tuple(self.env[name] for name in self.skeleton.alive[self.end])

    def _forward(self) -> Optional[torch.Tensor]:
        skeleton = self.skeleton
        unbound = skeleton.unbound(self.bound, device_of(self.batch))
        with patched(skeleton.layers, self._layer), patched(skeleton.owners, self._owner), swapped(unbound):
            try:
                # Zeros and what is computed from them carry no gradients.
                torch.set_grad_enabled(self.gradients and not self.stubs)
                return skeleton.loss(self.batch)
            except Stop as stop:
                if stop.args[0] is not self:
                    raise
            finally:
                torch.set_grad_enabled(self.gradients)
        return None

    def _layer(self, module: torch.nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        skeleton, at = self.skeleton, self.at
        self.at += 1
        if at >= len(skeleton.calls) or skeleton.calls[at].module is not module:
            expected = skeleton.calls[at].name if at < len(skeleton.calls) else "no further layer"
            raise usage_error(f"model: expected its forward to call the same layers for each batch, but as call {at} came "
                              f"{type(module).__name__}, not {expected}: make the choice inside of a layer")
        call = skeleton.calls[at]
        last = at == len(skeleton.calls) - 1
        self._give_to_model(call, (args, kwargs))
        if self.start <= at < self.end:
            if at == self.start and self.stubs:
                self._use_values()
            args, kwargs = substituted(call, (args, kwargs), self.env, at == self.start)
            with _Hooked(call, self.env):
                result = forward(*args, **kwargs)
            collect(call, (args, kwargs), result, self.env)
            if last and self.end == len(skeleton.calls):
                raise Stop(self)
            return result
        if self.records is not None:
            self.records.append(self._without(call, (args, dict(kwargs))))
            if last:
                raise Stop(self)
        elif at >= self.end:
            if not self.stubs:
                self.stubs, self.random = True, _RandomState(device_of(self.batch), skeleton.draws)
            if self._gathered(call, (args, kwargs)):
                self.random.restore()
                raise Stop(self)
        result = self._handed_on(call, (args, kwargs))
        if last and self.end > at + 1:
            self._use_values()
        return result

    def _give_to_model(self, call: Call, given: tuple[Any, Any]) -> None:
        """Puts tensors that travel into the model's own variables, if it reads them after this call."""
        for path, name in call.read_outside:
            if name in self.given:
                torch.utils.swap_tensors(found(given, path), self._for_model(name))

    def _for_model(self, name: int) -> torch.Tensor:
        """Returns a copy of a tensor that travels, as the model may change it in place."""
        self.given.pop(name, None)
        with torch.set_grad_enabled(self.gradients):
            return self.env[name].clone()

    def _use_values(self) -> None:
        self.stubs = False
        torch.set_grad_enabled(self.gradients)
        self.random.restore()

    def _without(self, call: Call, given: tuple[Any, Any]) -> tuple[Any, Any]:
        """Takes tensors that travel out of the arguments that are kept."""
        for path, template in call.places:
            if isinstance(template, Leaf) and not in_container(given, path):
                given = placed(given, path, None)
        return given

    def _gathered(self, call: Call, given: tuple[Any, Any]) -> bool:
        """Takes what travels on from the arguments of a later call. Returns whether all is there."""
        wanted = self.skeleton.alive[self.end]
        for path, template in call.places:
            for inner, leaf in leaves(template, Leaf):
                if leaf.key not in self.env and leaf.key in wanted:
                    self.env[leaf.key] = found(given, path + inner)
        return all(name in self.env for name in wanted)

    def _handed_on(self, call: Call, given: tuple[Any, Any]) -> Any:
        """Returns what a layer that is not run would return: tensors that travel, and zeros like its first argument, which is the hidden
        state, for others."""
        first = next((tensor for _, tensor in leaves(given) if tensor.is_floating_point()), None)

        def known(leaf: Leaf) -> Any:
            return self._for_model(leaf.key) if leaf.key in self.env else None

        def known_or_zeros(leaf: Leaf) -> Any:
            if leaf.key in self.env or leaf.tensor is not None or first is None:
                return known(leaf)
            return torch.zeros(first.shape, dtype=first.dtype, device=first.device)

        for module, _, template in call.hooked:
            if any(leaf.key in self.env for _, leaf in leaves(template, Leaf)):
                with patched([module], lambda *call: mapped(template, known, Leaf)):
                    module()
        return mapped(call.result, known_or_zeros, Leaf)

    def _owner(self, module: torch.nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Gives zeros of the shape and type that a module would give, found on PyTorch's meta device."""
        if not self.stubs or self.on_meta or module in self.skeleton.needs_values:
            return forward(*args, **kwargs)
        self.on_meta = True
        try:
            with swapped(_on_meta(module)), torch.no_grad():
                shapes = forward(*mapped(args, _to_meta), **mapped(kwargs, _to_meta))
        except Exception:  # its shape depends on values, as that of a vision tower may
            self.skeleton.needs_values.add(module)
            shapes = None
        finally:
            self.on_meta = False
        if shapes is None:
            return forward(*args, **kwargs)
        device = device_of(self.batch)
        return mapped(shapes, lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype, device=device) if tensor.is_meta else tensor)


def _to_meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, device="meta")
