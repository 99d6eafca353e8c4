"""Cuts a PyTorch model into blocks, without a table of models.

A model's own forward is run with its layers replaced by recorders, which gives the arguments that each layer is called with. What carries a
gradient, or depends on weights, travels between the blocks as a tuple of tensors; everything else (masks, positions) is made again in each
block, by the model's own code."""

from __future__ import annotations

import dataclasses

import torch

from ._cut_buffers import make_buffers_real
from ._cut_run import Arguments, Block, Skeleton, call_with_batch, device_of, loss_of, usage_error
from ._cut_trace import CannotCut, Crossings, Trace, stand_in_weights

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional, Sequence, Union

    from ._cut_run import Batch

    Modules = Union[torch.nn.Module, Sequence[torch.nn.Module], Mapping[str, torch.nn.Module]]
    Loss = Callable[[Any, Batch], torch.Tensor]

_SEED = 20240801


@dataclasses.dataclass
class Piece:
    """One block.

    `parameters` are the names of those that `run` reads, as in named_parameters(); a tied one is listed under its first name, in each block
    that uses it. run(carried, batch) returns what the next block gets as `carried`; the last one returns a tuple with the loss alone. The
    first one gets ()."""

    name: str
    parameters: list[str]
    run: Callable[[tuple[torch.Tensor, ...], Batch], tuple[torch.Tensor, ...]]


@dataclasses.dataclass
class Cut:
    """A model and its blocks. copy.deepcopy() gives an independent one. `notes` says what could not be cut."""

    model: torch.nn.Module
    pieces: list[Piece]
    notes: list[str]
    loss: Optional[Loss] = None


def cut(model: Modules, example: Batch, *, layers: Optional[str] = None, loss: Optional[Loss] = None) -> Cut:
    """Cuts `model` into blocks: an nn.Sequential, or a list or dictionary of modules, into its modules, and any other model at its list of
    layers, which is found by its config, or named by `layers` ("model.layers").

    `example` is a batch as the model's forward takes it. The model may be on the meta device: weights are not read."""
    if isinstance(model, dict):
        model = torch.nn.ModuleDict(model)
    elif isinstance(model, (list, tuple)):
        model = torch.nn.ModuleList(model)
    _check_modules(model)
    without_value = make_buffers_real(model, device_of(example))
    result = _cut(model, example, layers, loss)
    result.notes += [f"Buffer {name} was on the meta device and is 0 until it is loaded: the model does not set it."
                     for name in without_value]
    return result


def _check_modules(model: torch.nn.Module) -> None:
    for name, module in model.named_modules():
        shown = f"{type(model).__name__}.{name}" if name else "the whole model"
        if type(module).__name__ == "OptimizedModule":
            raise usage_error(f"model: expected modules as they are, got one that torch.compile() made, {shown}: give the module that "
                              "torch.compile() was given; its layers may be compiled in place, by layer.compile()")
        if getattr(module, "gradient_checkpointing", False) is True:
            raise usage_error(f"model: expected modules without gradient checkpointing of their own, got it enabled in {shown}: call "
                              "model.gradient_checkpointing_disable(); Trainer(recompute=\"block\") does it here")


def _cut(model: torch.nn.Module, example: Batch, layers: Optional[str], loss: Optional[Loss]) -> Cut:
    if isinstance(model, (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)) and layers is None:
        return _chain(model, loss)
    found = _layers(model, layers)
    if not found:
        return _whole(model, loss, "its list of layers was not found (name it: layers=\"model.layers\")")
    skeleton = Skeleton(model, [module for _, module in found], loss)
    try:
        with stand_in_weights(model, device_of(example)) as names:
            return _traced(skeleton, example, names, {id(module): name for name, module in found})
    except CannotCut as why:
        return _whole(model, loss, str(why))


def check(cut: Cut, model: torch.nn.Module, example: Batch) -> float:
    """Returns the difference between the loss of the blocks, run one after the other, and that of `model`, with the same random numbers."""
    device = device_of(example)
    devices = [device] if device.type == "cuda" else []
    losses = []
    for composed in (True, False):
        with torch.random.fork_rng(devices), torch.no_grad():
            torch.manual_seed(_SEED)
            losses.append(_loss(cut.pieces, example) if composed else _plain(model, example, cut.loss))
    return abs(float(losses[0].double() - losses[1].double()))


def _plain(model: torch.nn.Module, batch: Batch, loss: Optional[Loss]) -> torch.Tensor:
    if isinstance(model, torch.nn.ModuleDict):
        model = torch.nn.ModuleList(model.values())
    if isinstance(model, (torch.nn.Sequential, torch.nn.ModuleList)):
        value: Any = call_with_batch(model[0], batch)
        for module in list(model)[1:]:
            value = module(*value) if isinstance(value, tuple) else module(value)
        return loss_of(value, batch, loss)
    return loss_of(call_with_batch(model, batch), batch, loss)


def _loss(pieces: list[Piece], batch: Batch) -> torch.Tensor:
    """Returns the loss of the blocks, one after the other."""
    with torch.no_grad():
        carried: tuple[torch.Tensor, ...] = ()
        for piece in pieces:
            carried = piece.run(carried, batch)
    return carried[0]


class _Child:
    """Runs one module of a chain, and the loss after the last one."""

    def __init__(self, module: torch.nn.Module, first: bool, last: bool, loss: Optional[Loss]) -> None:
        self.module, self.first, self.last, self.loss_function = module, first, last, loss

    def __call__(self, carried: tuple[torch.Tensor, ...], batch: Batch) -> tuple[torch.Tensor, ...]:
        result = call_with_batch(self.module, batch) if self.first else self.module(*carried)
        if self.last:
            return (loss_of(result, batch, self.loss_function),)
        result = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        for value in result:
            if not isinstance(value, torch.Tensor):
                raise usage_error(f"model: expected a tensor or a tuple of tensors from {type(self.module).__name__}, got "
                                  f"{type(value).__name__}: return tensors, which the next module gets one by one")
        return result


def _chain(model: torch.nn.Module, loss: Optional[Loss]) -> Cut:
    children = list(model._modules.items())
    if not children:
        raise usage_error("model: expected at least one module, got none")
    if loss is None:
        raise usage_error("loss: expected a function of (output, batch) for a model that is a chain of modules, got none: "
                          "give Trainer(loss=lambda output, batch: torch.nn.functional.cross_entropy(output, batch[\"labels\"]))")
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    pieces = [Piece(name, list(dict.fromkeys(first[id(parameter)] for parameter in module.parameters())),
                    _Child(module, at == 0, at == len(children) - 1, loss)) for at, (name, module) in enumerate(children)]
    return Cut(model, pieces, [], loss)


class _Whole:
    """Runs a model that is one block."""

    def __init__(self, model: torch.nn.Module, loss: Optional[Loss]) -> None:
        self.model, self.loss_function = model, loss

    def __call__(self, carried: tuple[torch.Tensor, ...], batch: Batch) -> tuple[torch.Tensor, ...]:
        return (_plain(self.model, batch, self.loss_function),)


def _whole(model: torch.nn.Module, loss: Optional[Loss], why: str) -> Cut:
    piece = Piece("model", [name for name, _ in model.named_parameters()], _Whole(model, loss))
    return Cut(model, [piece], [f"{type(model).__name__} is one block, because {why}."], loss)


def _layers(model: torch.nn.Module, names: Optional[str]) -> list[tuple[str, torch.nn.Module]]:
    """Returns the layers with their names.

    They are those that the user named. In a model of transformers they are those of the list that is as long as the config says, and of
    such lists that with most parameters. In any other model they are those of all lists of blocks."""
    modules = dict(model.named_modules())
    lists = {name: module for name, module in modules.items() if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential))}
    if names is not None:
        chosen = [name.strip() for name in names.split(",")]
        for name in chosen:
            if not name or next(modules.get(name, torch.nn.Identity()).children(), None) is None:
                raise usage_error(f"layers: expected the name of a list of modules in {type(model).__name__}, got {name!r}: "
                                  f"it has {', '.join(list(lists)[:8]) or 'no lists'}")
    else:
        config = getattr(model, "config", None)
        count = getattr(config.get_text_config(), "num_hidden_layers", None) if hasattr(config, "get_text_config") else None
        fitting = [name for name, module in lists.items() if isinstance(module, torch.nn.ModuleList) and len(module) == count]
        chosen = sorted(fitting, key=lambda name: -sum(parameter.numel() for parameter in lists[name].parameters()))[:1]
        for name, module in () if chosen else lists.items():
            if name and _holds_blocks(module) and not any(name.startswith(f"{one}.") for one in chosen):
                chosen.append(name)
    return [layer for name in chosen for layer in _called(name, modules[name])]


def _holds_blocks(module: torch.nn.Module) -> bool:
    """Whether a list has two modules with parameters, or, in a Sequential, which may be a layer itself, with modules of their own."""
    if isinstance(module, torch.nn.Sequential):
        return sum(next(child.children(), None) is not None for child in module) > 1
    return sum(next(child.parameters(), None) is not None for child in module) > 1


def _called(name: str, module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Returns the modules in a list. Lists in it, which nothing calls, are taken apart."""
    result = []
    for key, child in module.named_children():
        if isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            result += _called(f"{name}.{key}", child)
        else:
            result.append((f"{name}.{key}", child))
    return result


def _traced(skeleton: Skeleton, example: Batch, names: dict[int, str], called: dict[int, str]) -> Cut:
    """Makes the blocks of a model whose parameters are stand-ins."""
    torch.manual_seed(_SEED)
    trace = Trace(skeleton, names, called, example)
    try:
        crossings = Crossings(trace, example)
        pieces, unused = _pieces(crossings)
        torch.manual_seed(_SEED)
        composed = _loss(pieces, example)
    except Exception as error:
        raise CannotCut(f"its forward failed when it was run in blocks: {type(error).__name__}: {error}") from error
    right = trace.loss.detach()
    if not torch.allclose(composed.double(), right.double(), rtol=16 * torch.finfo(right.dtype).eps, atol=0, equal_nan=True):
        raise CannotCut(f"the loss of its blocks would be {float(composed)}, and that of the model is {float(right)}")
    notes = [_merged(skeleton, block.start, block.end, crossings.reasons) for block in (piece.run for piece in pieces)
             if any(border in crossings.reasons for border in range(block.start + 1, block.end))]
    notes += [f"No block uses {name}." for name in unused]
    skeleton.arguments = Arguments()
    return Cut(skeleton.model, pieces, notes, skeleton.loss_function)


def _pieces(crossings: Crossings) -> tuple[list[Piece], list[str]]:
    """Returns the blocks, and the names of parameters that none uses."""
    skeleton, pieces = crossings.skeleton, []
    by_segment, unused = crossings.trace.parameters_by_segment()
    count = len(skeleton.calls)
    ends = [-1, *crossings.borders, count + 1]
    for start, end in zip(ends, ends[1:]):
        first = 0 if start < 0 else min(2 * start + 1, 2 * count)
        last = 2 * end if end < count else 2 * end - 1
        parameters = [name for name, segments in by_segment.items() if any(first <= segment <= last for segment in segments)]
        pieces.append(Piece(_name(skeleton, start, end), parameters,
                            Block(skeleton, start, end, parameters, crossings.is_direct(start, end))))
    return pieces, unused


def _merged(skeleton: Skeleton, start: int, end: int, reasons: dict[int, str]) -> str:
    why = dict.fromkeys(reasons[border] for border in range(start + 1, end) if border in reasons)
    return f"{_name(skeleton, start, end)} is one block, because {', and '.join(why)}."


def _name(skeleton: Skeleton, start: int, end: int) -> str:
    calls = skeleton.calls
    names = ["embedding"] if start < 0 else []
    inner = calls[max(start, 0):min(end, len(calls))]
    if inner:
        first, last = inner[0].name, inner[-1].name
        of_one_list = first.rpartition(".")[0] == last.rpartition(".")[0]
        names.append(first if len(inner) == 1 else f"{first}-{last.rpartition('.')[2] if of_one_list else last}")
    if end > len(calls):
        names.append("head")
    return "+".join(names)
