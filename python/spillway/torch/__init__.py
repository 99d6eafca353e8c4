"""Models of PyTorch for spillway.Trainer: PyTorch computes the forward and backward of their blocks, and the run does everything else."""

from __future__ import annotations

import contextlib
import copy
import os
import warnings

import torch

from .. import _core
from ..errors import UsageError, UsageTypeError
from ._comparison import compare
from ._cut import Cut, Piece, cut
from ._data import Samples, samples_of, saved_state, saved_states, with_labels
from ._save import pretrained_files, save_pretrained, weights_of
from ._skeleton import Shared
from ._weighting import weight_of

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    import pathlib
    from typing import Any, Callable, Optional

__all__ = ["blocks", "save_pretrained", "training", "with_labels", "Cut", "Piece"]

_ENDLESS = 1 << 40  # the number of samples of an iterable that does not know it
_PRECISIONS = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.float16: "fp16"}
_TYPES = {name: dtype for dtype, name in _PRECISIONS.items()}

blocks = cut


class _WithLabels:
    """Samples of a causal language model whose data has no labels."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self.streamed = samples.streamed

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return with_labels(self._samples[index])

    def read(self, index: int, row: int) -> dict[str, torch.Tensor]:
        return with_labels(self._samples.read(index, row))


def training(model: Any, name: str, arguments: dict[str, Any], data: Any, validation_data: Any, *,
             loss: Optional[Callable[..., Any]] = None, layers: Optional[str] = None, autocast: Optional[torch.dtype] = None,
             collate: Optional[Callable[..., Any]] = None, weights: Any = None) -> tuple[_core.Training, Callable[[Any], None]]:
    """Returns the training of a model of PyTorch, and what completes each of its checkpoints. The first sample shows how the model is
    called. `weights` is a folder as transformers writes it, or safetensors files; without it the model's own weights are read, which
    must then not be on the meta device. The model itself is not changed."""
    if loss is not None and not callable(loss):
        raise UsageTypeError(f"loss: expected a function loss(outputs, batch) that returns the mean loss, got {type(loss).__name__}")
    if isinstance(loss, torch.nn.Module) and "Loss" in type(loss).__name__:
        raise UsageTypeError(f"loss: expected a function loss(outputs, batch), got {type(loss).__name__}(): write "
                             f"loss=lambda outputs, batch: torch.nn.{type(loss).__name__}()(outputs, batch['name of the targets'])")
    if autocast is not None and autocast not in (torch.bfloat16, torch.float16):
        raise UsageTypeError(f"autocast: expected torch.bfloat16 or torch.float16, got {autocast}")
    if arguments.get("lora") is not None:
        raise UsageError(f"lora: expected none for a model of PyTorch, got {arguments['lora']!r}: give the model that "
                         "peft.get_peft_model(model, peft.LoraConfig(...)) returns, whose adapters are then trained")
    model = _plain_modules(model)
    causal = loss is None and _is_causal(model)
    samples, given = _samples(data, "data", arguments, collate, causal)
    validation = None if validation_data is None else _samples(validation_data, "validation_data", arguments, collate, causal)[0]
    arguments.pop("sequence_length", None)

    def rows(count: int) -> dict[str, torch.Tensor]:
        some = [samples[i % len(samples)] for i in range(count)]
        return {key: torch.stack([sample[key] for sample in some]) for key in some[0]}

    own_parameters = _parameters(model)
    arguments.setdefault("precision", _PRECISIONS[next(p.dtype for p in own_parameters.values() if p.requires_grad)])
    dtype = _TYPES.get(arguments["precision"], torch.float32)
    bare = {p: torch.nn.Parameter(torch.empty_like(p, dtype=dtype, device="meta"), p.requires_grad) for p in own_parameters.values()}
    own = {id(new): p for p, new in bare.items()}
    copied = copy.deepcopy(model, {id(p): new for p, new in bare.items()})
    _buffers_to_cpu(copied)
    pieces = cut(copied, rows(1), layers=layers, loss=loss)
    parameters = dict(pieces.model.named_parameters())
    found = compare(pieces, rows(2), dtype)
    shared = Shared(pieces, found, rows, dtype, autocast)
    of_ids = {id(m.weight) for m in pieces.model.modules() if isinstance(m, torch.nn.Embedding)}
    stored = {} if weights is None else weights_of(weights, pieces.model)
    specs = {key: (list(p.shape), p.requires_grad, id(p) in of_ids, _stored(stored[key]) if stored else _values(own[id(p)], key), False)
             for key, p in parameters.items()}
    buffers = dict(pieces.model.named_buffers())
    for key in {name for names in found.statistics for name in names}:
        specs[key] = (list(buffers[key].shape), True, False, _values(buffers[key], key), True)
    described = [(piece.name, [(key, specs[key]) for key in [*piece.parameters, *statistics]])
                 for piece, statistics in zip(pieces.pieces, found.statistics)]
    weight = "one" if loss is not None else weight_of(pieces.model, rows(2), "next labels" if causal else "labels")
    notes = [*pieces.notes, found.note]
    processing = arguments.pop("tokenizer") if hasattr(arguments.get("tokenizer"), "save_pretrained") else None
    files = pretrained_files(pieces.model, processing, shared.dtype)
    made = _core._torch_training(arguments, name, described, shared.start_run, weight, samples, validation, notes)
    if arguments.get("out") is not None:
        given.load_state_dicts(saved_states(arguments["out"]))
    return made, lambda event: _complete(event.checkpoint, {**files, **saved_state(given, event.step)})


def _complete(checkpoint: pathlib.Path, files: dict[str, bytes]) -> None:
    """Adds the files that from_pretrained() needs. A checkpoint without them resumes the run just as well, so the run goes on if they
    cannot be written."""
    for name, content in files.items():
        path = checkpoint / name
        part = path.with_name(f"{path.name}.partial-{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content)
            os.replace(part, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            warnings.warn(f"{checkpoint} is complete for the run, but not a folder for from_pretrained(): {error}; "
                          "spillway.torch.save_pretrained() makes one of it", stacklevel=2)
            return


def _samples(data: Any, argument: str, arguments: dict[str, Any], collate: Optional[Callable[..., Any]],
             causal: bool) -> tuple[Any, Samples]:
    """Returns the samples as the model takes them, and as the data gives them."""
    samples = samples_of(data, argument, collate=collate, sequence_length=arguments.get("sequence_length"))
    if samples.ordered and argument == "data":
        if arguments.get("data_order", "sequential") != "sequential":
            raise UsageError(f"data_order: expected none beside a DataLoader, whose own order is kept, got {arguments['data_order']!r}: give "
                             "the DataLoader shuffle=True, or give its dataset as data")
        if arguments.get("validation_fraction"):
            raise UsageError("validation_fraction: expected none beside a DataLoader, whose own order is kept: give validation_data")
        arguments["data_order"] = "sequential"
        if samples.batch_size is not None:
            arguments.setdefault("micro_batch_size", samples.batch_size)
        each = int(arguments.get("global_batch_size", arguments.get("micro_batch_size", 1)))
        samples.kept = 2 * each
        samples.rows_per_step = each
        if samples.length is None and arguments.get("steps") is not None:
            samples.length = _ENDLESS
    return _WithLabels(samples) if causal and "labels" not in samples.first else samples, samples


def _is_causal(model: Any) -> bool:
    """Whether the model predicts the next token, by its name."""
    return any(word in type(model).__name__ for word in ("CausalLM", "LMHead"))


def _plain_modules(model: Any) -> Any:
    """Returns a model that torch.compile() was given, in place of the compiled one. Throws UsageTypeError for compiled TorchScript."""
    for whole in model.values() if isinstance(model, dict) else model if isinstance(model, (list, tuple)) else [model]:
        for name, module in whole.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                raise UsageTypeError(f"model: expected modules of Python, got {name or 'the model'}, a {type(module).__name__}: give the "
                                     "module from which torch.jit made it")
    return getattr(model, "_orig_mod", model)


def _buffers_to_cpu(model: Any) -> None:
    """Moves buffers from a GPU to the CPU, on which the model is cut and compared. Each rank takes them to where it computes."""
    for whole in model.values() if isinstance(model, dict) else model if isinstance(model, (list, tuple)) else [model]:
        for module in whole.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None and not buffer.is_meta:
                    module._buffers[name] = buffer.cpu()


def _parameters(model: Any) -> dict[str, torch.nn.Parameter]:
    """Returns the model's parameters. Throws UsageError or UsageTypeError for one that cannot be the run's."""
    if isinstance(model, dict):
        model = torch.nn.ModuleDict(model)
    elif isinstance(model, (list, tuple)):
        model = torch.nn.ModuleList(model)
    parameters = dict(model.named_parameters())
    if not any(p.requires_grad for p in parameters.values()):
        raise UsageError("model: expected at least one parameter that is trained, got none with requires_grad")
    for name, p in parameters.items():
        if p._backward_hooks or p._post_accumulate_grad_hooks:
            raise UsageError(f"model: expected parameters without hooks, got {name}, whose hook would not be called, because its gradient "
                             "is the run's: change the gradient in an autograd.Function of the forward")
        if isinstance(p, torch.nn.parameter.UninitializedParameter):
            raise UsageError(f"model: expected parameters of known shapes, got {name}, which is made in the first forward: run one forward "
                             "before the Trainer is made")
        if p.dtype not in _PRECISIONS:
            raise UsageTypeError(f"model: expected parameters of floating-point numbers, got {p.dtype} in {name}: make it a buffer")
        if p.is_sparse or p.layout != torch.strided:
            raise UsageTypeError(f"model: expected dense parameters, got {p.layout} in {name}")
    return parameters


def _values(parameter: torch.Tensor, name: str) -> Callable[[int, int], torch.Tensor]:
    flat = parameter.detach().reshape(-1)

    def values(begin: int, count: int) -> torch.Tensor:
        if flat.is_meta:
            raise UsageError(f"model: expected weights, got none for {name}, which is on the meta device: give weights=, a folder that has "
                             "them")
        return flat[begin : begin + count].to("cpu", torch.float64).contiguous()

    return values


def _stored(read: Callable[[int, int], torch.Tensor]) -> Callable[[int, int], torch.Tensor]:
    return lambda begin, count: read(begin, begin + count).to(torch.float64)

