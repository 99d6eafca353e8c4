"""Finds out what travels between the layers of a model: its forward is run once, and the graph that PyTorch builds for gradients read."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses

import torch

from ._cut_run import Call, Pass, Skeleton, patched, swapped
from ._cut_tree import Leaf, differences, entries, leaves, mapped

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from ._cut_run import Batch
    from ._cut_tree import Path

# A model's forward is a row of segments: 0 is what stands before the first call of a layer, 2i + 1 is call i, 2i + 2 is what stands
# between call i and the next one, or after the last call.


class CannotCut(Exception):
    """Says why a model is one block."""


class _StandIns:
    """Parameters to trace a model with. Their values repeat, and matrices share memory, so that they take about as much of it as the
    largest matrix that is multiplied with."""

    PERIOD, STEP = 1000003, 64

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        self.device, self.generator = device, torch.Generator().manual_seed(20240801)
        self.shared: dict[torch.dtype, torch.Tensor] = {}
        self.made: dict[int, torch.nn.Parameter] = {}
        looked_up = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
        for module in model.modules():
            for parameter in module._parameters.values():
                if parameter is not None and id(parameter) in looked_up and not isinstance(module, torch.nn.Embedding):
                    looked_up.remove(id(parameter))
        self.looked_up = looked_up
        self.largest: dict[torch.dtype, int] = {}
        for parameter in model.parameters():
            if id(parameter) not in looked_up:
                count = parameter.numel() // (parameter.shape[0] if self._is_batch(parameter) else 1)
                self.largest[parameter.dtype] = max(self.largest.get(parameter.dtype, 0), count)

    @staticmethod
    def _is_batch(parameter: torch.nn.Parameter) -> bool:
        """Whether it holds matrices of experts, which are then all the same."""
        return parameter.dim() > 2 and parameter.numel() > 1 << 24

    def of(self, parameter: torch.nn.Parameter) -> torch.nn.Parameter:
        if id(parameter) not in self.made:
            values = self._values(parameter)
            self.made[id(parameter)] = torch.nn.Parameter(values, values.dtype.is_floating_point or values.dtype.is_complex)
        return self.made[id(parameter)]

    def _random(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(count, generator=self.generator).to(device=self.device, dtype=dtype)

    def _values(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        shape, dtype = parameter.shape, parameter.dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            return torch.zeros((), dtype=dtype, device=self.device).expand(shape)
        if parameter.numel() == 0:
            return torch.empty(shape, dtype=dtype, device=self.device)
        if len(shape) < 2:
            return (1 + self._random(parameter.numel(), dtype) / 8).reshape(shape)
        if id(parameter) in self.looked_up:
            return self._random(sum(shape) - len(shape) + 1, dtype).as_strided(shape, (1,) * len(shape))
        batched = self._is_batch(parameter)
        single = torch.Size(shape[1:] if batched else shape)
        if dtype not in self.shared:
            count = self.largest[dtype] + self.PERIOD
            self.shared[dtype] = (self._random(self.PERIOD, dtype) * 0.03).repeat(-(-count // self.PERIOD))[:count]
        start = len(self.made) * self.STEP % self.PERIOD // self.STEP * self.STEP
        matrix = self.shared[dtype][start:start + single.numel()].view(single)
        return matrix.expand(shape) if batched else matrix


@contextlib.contextmanager
def stand_in_weights(model: torch.nn.Module, device: torch.device) -> Iterator[dict[int, str]]:
    """While it lasts, parameters are random numbers that take little memory. Yields names by the identity of these parameters. Buffers and
    random generators are afterwards as they were."""
    stand_ins = _StandIns(model, device)
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    slots, names = [], {}
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                slots.append((module._parameters, key, stand_ins.of(parameter)))
                names[id(stand_ins.of(parameter))] = first[id(parameter)]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with torch.random.fork_rng([device] if device.type == "cuda" else []), swapped(slots):
        try:
            yield names
        finally:
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)


@dataclasses.dataclass
class _Traced:
    """What was seen of one call."""

    call: Call
    given: Any = None                                                        # template of (args, kwargs) before the call
    after: Any = None                                                        # and after it
    hooked: list[tuple[torch.nn.Module, int, Any]] = dataclasses.field(default_factory=list)


class Trace:
    """One run of a model's forward with everything that crosses the borders of its layers.

    `keys` are tensors: (node of the graph, number of its output) for one that carries a gradient, ("value", identity) for others."""

    def __init__(self, skeleton: Skeleton, names: dict[int, str], called: dict[int, str], batch: Batch) -> None:
        self.skeleton, self.names, self.called = skeleton, names, called
        self.calls: list[_Traced] = []
        self.marks: list[int] = []
        self.inside = False
        self.kept: list[torch.Tensor] = []                 # so that identities stay unique
        self.segments_of_module: dict[torch.nn.Module, set[int]] = {}
        self.segments_of: dict[str, set[int]] = {}         # of a parameter
        self.made: dict[Any, int] = {}                     # the segment in which a tensor was made
        self.read: dict[Any, set[int]] = {}                # and those which read it
        hooks = [module.register_forward_pre_hook(self._note_module) for module in skeleton.model.modules()]
        try:
            # Nothing is computed backward, so what the graph would save for that is dropped at once.
            with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda tensor: None, lambda nothing: nothing), patched(
                    skeleton.layers, self._layer):
                self.loss = skeleton.loss(batch)
        finally:
            for hook in hooks:
                hook.remove()
        if not self.calls:
            raise CannotCut("its forward calls none of its layers")
        skeleton.calls = [traced.call for traced in self.calls]
        self._walk()

    def _note_module(self, module: torch.nn.Module, args: Any) -> None:
        self.segments_of_module.setdefault(module, set()).add(len(self.marks))

    def _mark(self) -> None:
        with torch.enable_grad():
            self.marks.append((torch.zeros((), requires_grad=True) * 1).grad_fn._sequence_nr())

    def _packed(self, value: Any) -> Any:
        return mapped(value, self._leaf)

    def _leaf(self, tensor: torch.Tensor) -> Leaf:
        if tensor.grad_fn is not None:
            return Leaf((tensor.grad_fn, tensor.output_nr))
        self.kept.append(tensor)
        return Leaf(("value", id(tensor)), tensor.detach())

    def _layer(self, module: torch.nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.inside:
            raise CannotCut("its layers call each other")
        number = sum(traced.call.module is module for traced in self.calls)
        name = self.called[id(module)]
        traced = _Traced(Call(module, f"{name} call {number + 1}" if number else name), self._packed((args, kwargs)))
        versions = [(path, tensor, tensor._version) for path, tensor in leaves((args, kwargs))]
        counts: dict[torch.nn.Module, int] = {}

        def keep(hooked: torch.nn.Module, hooked_forward: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
            result = hooked_forward(*a, **k)
            count = counts[hooked] = counts.get(hooked, -1) + 1
            traced.hooked.append((hooked, count, self._packed(result)))
            return result

        with_hooks = [part for part in module.modules() if part is not module and part._forward_hooks]
        self._mark()
        self.inside = True
        with patched(with_hooks, keep):
            result = forward(*args, **kwargs)
        self.inside = False
        self._mark()
        traced.call.result = self._packed(result)
        traced.after = self._packed((args, kwargs))
        traced.call.changed = [path for path, tensor, version in versions if tensor._version != version]
        self.calls.append(traced)
        return result

    def _walk(self) -> None:
        """Reads the graph: which segment uses which parameters, and which tensors cross from one segment into another."""
        if self.loss.grad_fn is None:
            raise CannotCut("its loss carries no gradient")
        nodes, rest = {self.loss.grad_fn: None}, [self.loss.grad_fn]
        while rest:
            for source, _ in rest.pop().next_functions:
                if source is not None and source not in nodes and not _is_leaf(source):
                    nodes[source] = None
                    rest.append(source)
        segments = self._segments(sorted(nodes, key=lambda node: node._sequence_nr()))  # sources come before what is made from them
        for node, segment in segments.items():
            for source, output in node.next_functions:
                if source is not None and _is_leaf(source):
                    name = self.names.get(id(source.variable))
                    if name is not None:
                        self.segments_of.setdefault(name, set()).add(segment)
                elif source is not None and segments[source] != segment:
                    self.made[source, output] = segments[source]
                    self.read.setdefault((source, output), set()).add(segment)

    def _segments(self, nodes: list[Any]) -> dict[Any, int]:
        """Returns the segment in which each node counts as made.

        What a model computes between layers for an argument of a layer, but from what was there before (a slice of an embedding for this
        layer), it also computes when layers are not run: it counts as made as early as that."""
        plain = {node: bisect.bisect_left(self.marks, node._sequence_nr()) for node in nodes}
        early: dict[Any, int] = {}
        for node in nodes:
            early[node] = plain[node]
            inner = [early[source] for source, _ in node.next_functions if source in early]
            if inner and plain[node] % 2 == 0 and plain[node] < len(self.marks):
                early[node] = min(plain[node], max((one + 1) // 2 * 2 for one in inner))
        arguments = {leaf.key[0] for traced in self.calls for _, leaf in leaves(traced.given, Leaf)}
        for node in reversed(nodes):
            if early[node] < plain[node] and node in arguments:
                arguments.update(source for source, _ in node.next_functions if source in plain and plain[source] == plain[node])
        return {node: early[node] if node in arguments else plain[node] for node in nodes}

    def parameters_by_segment(self) -> tuple[dict[str, set[int]], list[str]]:
        """Returns the segments that use each parameter, and the parameters that none uses. Where the graph does not show it, a parameter is
        used where its module is called, or else where the module around that is."""
        modules = dict(self.skeleton.model.named_modules(remove_duplicate=False))
        slots = [(place, module, self.names[id(parameter)]) for place, module in modules.items()
                 for parameter in module._parameters.values() if parameter is not None]
        result = {name: set(self.segments_of.get(name, ())) for _, _, name in slots}
        for _, module, name in slots:
            if module not in self.skeleton.holders:
                result[name] |= self.segments_of_module.get(module, set())
        for place, _, name in slots:
            while not result[name] and place and modules[place] not in self.skeleton.holders:
                result[name] |= self.segments_of_module.get(modules[place], set())
                place = place.rpartition(".")[0]
        return result, [name for name, segments in result.items() if not segments]


class Crossings:
    """Between which calls a traced model can be cut, and what travels there."""

    def __init__(self, trace: Trace, batch: Batch) -> None:
        self.trace, self.skeleton = trace, trace.skeleton
        self.count = len(trace.calls)
        self.numbers: dict[Any, int] = {}                  # of the tensors that travel
        self.reasons: dict[int, str] = {}                  # why a border is none
        self.as_argument: dict[Any, list[int]] = {}        # the calls that get a tensor
        self.as_result: dict[Any, list[int]] = {}          # the calls that return it, or give it to a hook
        self.as_left: dict[Any, list[int]] = {}            # the calls that put it into their arguments
        for result in (call.result for call in self.skeleton.calls):
            _drop_values(result)
        with torch.no_grad():
            skipped = Pass(self.skeleton, self.count, self.count, set(), batch).recorded()
        places = [self._places(at, given) for at, given in enumerate(skipped)]
        self._expose()
        self._number(places)
        self.borders: list[int] = []
        travelling: set[Any] = set()
        for at in range(self.count + 1):
            if self._is_border(at, travelling):
                self.borders.append(at)
                travelling = set(self._alive(at))
        self._finish(places)

    def _places(self, at: int, given: Any) -> list[tuple[Path, Any]]:
        found = []
        for path, template in differences(self.trace.calls[at].given, given):
            if template is None:
                shown = ("" if path[0] else "argument ") + ".".join(str(key) for key in path[1:])
                self.reasons[at] = f"the layers hand on {shown} and change it, and it is no tensor"
            else:
                found.append((path, template))
        return found

    def _expose(self) -> None:
        for at, traced in enumerate(self.trace.calls):
            before = set()
            for _, leaf in leaves(traced.given, Leaf):
                before.add(leaf.key)
                self.as_argument.setdefault(leaf.key, []).append(at)
            for template in (traced.call.result, *(template for _, _, template in traced.hooked)):
                for _, leaf in leaves(template, Leaf):
                    self.as_result.setdefault(leaf.key, []).append(at)
            for _, leaf in leaves(traced.after, Leaf):
                if leaf.key not in before:
                    self.as_left.setdefault(leaf.key, []).append(at)

    def _number(self, places: list[list[tuple[Path, Any]]]) -> None:
        """Values without a gradient travel if they are not the same where nothing before the layers is computed."""
        trace = self.trace
        for at, found_places in enumerate(places):
            for _, template in found_places:
                for _, leaf in leaves(template, Leaf):
                    if leaf.key[0] == "value":
                        source = min(self.as_result.get(leaf.key, []) + self.as_left.get(leaf.key, []), default=None)
                        first = self.as_argument[leaf.key][0]
                        trace.made[leaf.key] = 2 * source + 1 if source is not None and source < first else 2 * first
                        trace.read.setdefault(leaf.key, set()).add(2 * at + 1)
                        name = trace.names.get(leaf.key[1])
                        if name is not None:  # a parameter that the model hands to its layers
                            trace.made[leaf.key] = 0
                            trace.segments_of[name] = trace.segments_of.get(name, set()) - {2 * at + 1} | {0}
        for key in sorted(trace.read, key=lambda key: (trace.made[key], min(trace.read[key]))):
            self.numbers[key] = len(self.numbers)

    def _before(self, segment: int, border: int) -> bool:
        return segment <= (2 * border if border < self.count else 2 * border - 1)

    def _alive(self, border: int) -> list[Any]:
        return [key for key in self.numbers if self._before(self.trace.made[key], border)
                and any(not self._before(segment, border) for segment in self.trace.read[key])]

    def _is_border(self, border: int, travelling: set[Any]) -> bool:
        """Whether all that crosses a border can be taken from what is known there, or has travelled to the border before, and whether all
        who read it can get it: a layer as an argument, the model itself as an argument or result of a layer. Where nothing crosses, as
        before a first layer that reads the batch itself, there is no border."""
        alive = self._alive(border)
        if border in self.reasons or not alive:
            return False
        for key in alive:
            results = [at for at in self.as_result.get(key, []) if at < border]
            arguments = self.as_argument.get(key, [])
            left = [at for at in self.as_left.get(key, []) if at < border]
            later = [segment for segment in self.trace.read[key] if not self._before(segment, border)]
            readable = all(results or (segment // 2 in arguments if segment % 2 else arguments and 2 * arguments[0] + 1 < segment)
                           for segment in later)
            if not readable or not (key in travelling or results or left or arguments and arguments[-1] >= border):
                self.reasons[border] = "the model computes between them with something that no layer gets or returns"
                return False
        return True

    def _finish(self, places: list[list[tuple[Path, Any]]]) -> None:
        """Replaces keys by numbers in everything that runs need."""
        skeleton, trace = self.skeleton, self.trace
        skeleton.alive = [[self.numbers[key] for key in self._alive(border)] for border in range(self.count + 1)]

        def numbered(leaf: Leaf) -> Any:
            number = self.numbers.get(leaf.key)
            return None if number is None and leaf.tensor is not None else Leaf(number, leaf.tensor)

        def read_later(leaf: Leaf, at: int) -> bool:
            return any(segment >= 2 * at + 1 for segment in trace.read.get(leaf.key, ()))

        for at, traced in enumerate(trace.calls):
            call = traced.call
            call.places = [(path, mapped(template, numbered, Leaf)) for path, template in places[at]
                           if any(read_later(leaf, at) for _, leaf in leaves(template, Leaf))]
            call.read_outside = [(path, self.numbers[leaf.key]) for path, leaf in leaves(traced.given, Leaf) if any(
                segment % 2 == 0 and segment > 2 * at + 1 for segment in trace.read.get(leaf.key, ()))]
            call.left = [(path, self.numbers[leaf.key]) for path, leaf in leaves(traced.after, Leaf)
                         if at in self.as_left.get(leaf.key, []) and leaf.key in self.numbers]
            call.hooked = [(module, number, mapped(template, numbered, Leaf)) for module, number, template in traced.hooked
                           if any(leaf.key in self.numbers for _, leaf in leaves(template, Leaf))]
            call.result = mapped(call.result, numbered, Leaf)
            skeleton.copies_containers |= _content(traced.given) != _content(traced.after)

    def is_direct(self, start: int, end: int) -> bool:
        """Whether the calls from `start` to before `end` get only what the calls return to each other, so that they need no part of the
        model's own forward between them."""
        if start < 0 or end > self.count:
            return False
        env = set(self.skeleton.alive[start])
        for at in range(start, end):
            call = self.skeleton.calls[at]
            if any(leaf.key is not None and leaf.key not in env for path, template in call.places for _, leaf in leaves(template, Leaf)):
                return False
            for template in (call.result, *(template for _, _, template in call.hooked)):
                env.update(leaf.key for _, leaf in leaves(template, Leaf))
            env.update(name for _, name in call.left)
        return env.issuperset(self.skeleton.alive[end])


def _is_leaf(node: Any) -> bool:
    """Whether a node of the graph stands for a parameter or for something else that was not computed."""
    return type(node).__name__ == "AccumulateGrad"


def _content(template: Any) -> Any:
    """Returns what a template holds, to compare it with another one."""
    parts = entries(template)
    if parts is not None:
        return [(key, _content(part)) for key, part in parts.items()]
    if isinstance(template, Leaf):
        return template.key
    return template if isinstance(template, (bool, int, float, str)) else type(template)


def _drop_values(template: Any) -> None:
    """Keeps of a tensor without gradient only that it was one."""
    for _, leaf in leaves(template, Leaf):
        if leaf.tensor is not None:
            leaf.tensor = torch.empty(0)
