"""Checkpoints as the folders that transformers and PEFT write and read, and their folders as the first values of parameters."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import json
import math
import os
import pathlib
import shutil
import tempfile
import threading

import torch

from . import _conversion
from ._safetensors import Held, Stored, Writer, stored_in

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

    from ._conversion import Conversion

    Path = Union[str, os.PathLike]
    Source = Union[Stored, Held]
    Values = Callable[[int, int], torch.Tensor]

_WEIGHTS, _ADAPTER = "model", "adapter_model"
_MOST_SHARD = 50 * 10**9  # bytes in one file, as in transformers


def pretrained_files(model: Any, processing: Any = None, dtype: Optional[torch.dtype] = None) -> dict[str, bytes]:
    """Returns the files that belong to the weights in a folder for from_pretrained(), by name: the configuration, the tokenizer's or
    processor's files, for adapters PEFT's configuration. None for a plain module.

    processing: a tokenizer or a processor. dtype: the type of the weights in the folder (default: the module's).
    """
    with tempfile.TemporaryDirectory() as folder:
        if _conversion.is_adapted(model):
            _save_adapter_config(model, folder)
        elif hasattr(model, "config") and hasattr(model.config, "save_pretrained"):
            _save_config(model, folder, dtype)
        if processing is not None:
            processing.save_pretrained(folder)
        files = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _save_config(model: Any, folder: str, dtype: Optional[torch.dtype]) -> None:
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    dtype = dtype or next((one.dtype for one in model.parameters() if one.is_floating_point()), None)
    if dtype is not None:
        config.dtype = str(dtype).removeprefix("torch.")
    if getattr(model, "_auto_class", None) is not None:  # a class that transformers does not have: its source belongs to the folder
        from transformers.dynamic_module_utils import custom_object_save

        custom_object_save(model, folder, config=config)
    config.save_pretrained(folder)
    if model.can_generate():
        model.generation_config.save_pretrained(folder)


def _save_adapter_config(model: Any, folder: str) -> None:
    active = model.active_adapters if hasattr(model, "get_base_model") else model.active_adapters()
    config = copy.deepcopy(model.peft_config[active[0]])
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if base is not model:  # PeftModel.save_pretrained() completes the configuration, transformers' does not
        config.base_model_name_or_path = config.base_model_name_or_path or getattr(base, "name_or_path", None) or None
        config.inference_mode = True
        if config.task_type is None:
            config.auto_mapping = {"base_model_class": type(base).__name__, "parent_library": type(base).__module__}
    config.save_pretrained(folder)


def save_pretrained(checkpoint: Path, out: Path, model: Any, processing: Any = None, *, max_shard_size: int = _MOST_SHARD) -> None:
    """Makes a folder `out` of a checkpoint, as model.save_pretrained(out) would for a model with these weights; for adapters that of the
    adapter alone. For a plain module it has only the weights.

    `model` gives names and shapes and may be on the meta device. Values come from the checkpoint piece by piece, buffers that it does not
    hold from the module. max_shard_size: the most bytes in one file. `out` must not exist; it appears when it is complete.
    """
    from ..errors import _system_errors

    where = os.fspath(checkpoint)
    stored = _checkpoint(where)
    adapted = _conversion.is_adapted(model)
    if adapted:
        state: dict[str, Source] = dict(stored)
        conversions = _conversion.adapters(model, [name for name, parameter in model.named_parameters()])
        _check_all(model, state, [name for one in conversions for name in one.sources], where)
    else:
        state = _state(model, stored, where)
        conversions = _conversion.saved(model, list(state))
    floats = [one.dtype for one in state.values() if one.dtype.is_floating_point]
    files = pretrained_files(model, processing, floats[0] if floats else None)
    with _new_folder(os.fspath(out)) as folder:
        _write_weights(os.path.join(folder, _ADAPTER if adapted else _WEIGHTS), stored, state, conversions, max_shard_size)
        for name, content in files.items():
            path = os.path.join(folder, name)
            with _system_errors(f"write {path}"):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                _write(path, content)


def weights_of(source: Union[Path, Sequence[Path]], model: Any, names: Optional[Sequence[str]] = None) -> dict[str, Values]:
    """Returns, for each parameter, a function values(begin, end) that reads the elements [begin, end) of the flat parameter from `source`,
    in the type that they have there.

    source: a folder as transformers writes it, or safetensors files. `model` may be on the meta device. names: parameters or buffers
    (default: all parameters). The functions may be called by several threads. They convert names and layouts as from_pretrained() does;
    what must be converted is read in parts that are as large as one tensor of the files (an expert), or as one parameter.
    """
    from ..errors import DataError

    stored = _files(source)
    wanted = [name for name, parameter in model.named_parameters()] if names is None else list(names)
    found: dict[str, Any] = {}
    kept = _Kept()
    for conversion in _conversion.loaded(model, list(stored)):
        if not conversion.changes_values:
            found.update({target: stored[name] for target, name in zip(conversion.shapes(stored), conversion.sources)})
            continue
        try:
            shapes = conversion.shapes(stored)
        except (RuntimeError, ValueError, IndexError, KeyError, AttributeError) as error:
            raise DataError(f"[weights] {_where(source)}: expected tensors that transformers can join or split, got "
                            f"{_listed(conversion.sources)}: {error}") from error
        found.update({name: _Converted(conversion, stored, name, dtype, shape, kept) for name, (dtype, shape) in shapes.items()})
    second = _conversion.tied(model)
    for name, first in second.items():
        if name in found or first in found:
            found.setdefault(name, found.get(first))
            found.setdefault(first, found.get(name))
    _check_all(model, found, wanted, _where(source))
    return {name: found[name].values for name in wanted}


class _Kept:
    """The tensors that were converted last, for several readings of them. At most one conversion's are kept."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._of: tuple[Any, int] = (None, 0)
        self._made: dict[str, torch.Tensor] = {}

    def made(self, conversion: Conversion, part: int, make: Callable[[], dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        if self._of[0] is not conversion or self._of[1] != part:
            self._made = {}
            self._made, self._of = make(), (conversion, part)
        return self._made


class _Converted:
    """A parameter that is joined or cut from tensors of files."""

    file = "the files"

    def __init__(self, conversion: Conversion, stored: Mapping[str, Stored], name: str, dtype: torch.dtype, shape: tuple[int, ...],
                 kept: _Kept) -> None:
        self._conversion, self._stored, self._name, self.dtype, self.shape, self._kept = conversion, stored, name, dtype, shape, kept

    def values(self, begin: int, end: int) -> torch.Tensor:
        """Reads the elements [begin, end) of the flat parameter."""
        conversion, stored = self._conversion, self._stored
        merges = conversion.parts() == "merge"
        part = math.prod(self.shape[1:]) if merges else math.prod(self.shape)
        read = [torch.empty(0, dtype=self.dtype)]
        with self._kept.lock:
            for at in range(begin // part if part else 0, -(-end // part) if part else 0):
                made = self._kept.made(conversion, at, lambda: conversion.merged(stored, at, at + 1) if merges else conversion.made(
                    {name: stored[name].whole() for name in conversion.sources}))
                read.append(made[self._name].reshape(-1)[max(begin - at * part, 0) : end - at * part].clone())
        return torch.cat(read)


def _check_all(model: Any, found: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    """Checks that there is a tensor of the right shape and kind for each of the names."""
    from ..errors import DataError

    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"[weights] {where}: expected tensors for all parameters of {type(model).__name__}, got none for "
                        f"{_listed(missing)}")
    own = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
    for name in names:
        have, want = found[name], own[name]
        if have.shape != tuple(want.shape):
            raise DataError(f"[weights] {where}: expected {name} of shape {tuple(want.shape)} as in {type(model).__name__}, "
                            f"got {have.shape}")
        if want.is_floating_point() != (have.dtype.is_floating_point and have.dtype.itemsize > 1):
            raise DataError(f"[weights] {where}: expected {name} as {want.dtype} or another such type, got {have.dtype}: weights that are "
                            "quantized must be converted to bf16 first")


def _state(model: torch.nn.Module, stored: Mapping[str, Stored], where: str) -> dict[str, Source]:
    """Returns what save_pretrained() would save, by the module's names: parameters, and buffers that are part of its state."""
    second = _conversion.tied(model)
    others = {first: name for name, first in second.items() if name in stored and first not in stored}
    ignored = getattr(model, "_keys_to_ignore_on_save", None) or ()
    buffers = dict(model.named_buffers(remove_duplicate=False))
    state: dict[str, Source] = {}
    names = []
    for name, tensor in model.state_dict().items():
        if name in ignored or not isinstance(tensor, torch.Tensor) or (name in second and (name not in stored or second[name] in others)):
            continue
        names.append(name)
        if name in stored or name in others:
            state[name] = stored[others.get(name, name)]
        elif name in buffers and not tensor.is_meta:
            state[name] = Held(tensor)
    _check_all(model, state, names, where)
    return state


def _checkpoint(folder: str) -> dict[str, Stored]:
    from ..errors import DataError

    for name in ("manifest.json", f"{_WEIGHTS}.safetensors"):
        if not os.path.isfile(os.path.join(folder, name)):
            raise DataError(f"[checkpoint] {folder}: expected a checkpoint with manifest.json and {_WEIGHTS}.safetensors, got none with "
                            f"{name}: give a folder such as RUN/checkpoints/step-00000010")
    return stored_in(os.path.join(folder, f"{_WEIGHTS}.safetensors"))


def _files(source: Union[Path, Sequence[Path]]) -> dict[str, Stored]:
    """Returns the tensors of a folder or of files."""
    from ..errors import DataError, UsageError, _system_errors

    if not isinstance(source, (str, os.PathLike)):
        files = [os.fspath(file) for file in source]
    elif os.path.isdir(source):
        index = os.path.join(source, f"{_WEIGHTS}.safetensors.index.json")
        names = [f"{_WEIGHTS}.safetensors"]
        if not os.path.isfile(os.path.join(source, names[0])) and os.path.isfile(index):
            with _system_errors(f"read {index}"), open(index, encoding="utf-8") as file:
                try:
                    names = sorted(set(json.load(file)["weight_map"].values()))
                except (ValueError, KeyError, AttributeError, TypeError) as error:
                    raise DataError(f"[weights] {index}: expected a weight_map of tensors to files, got what cannot be read "
                                    f"({error})") from None
        files = [os.path.join(source, name) for name in names]
    else:
        files = [os.fspath(source)]
    stored: dict[str, Stored] = {}
    for file in files:
        if not os.path.isfile(file):
            other = ": convert pytorch_model.bin with model.save_pretrained()" if os.path.isfile(
                os.path.join(os.path.dirname(file), "pytorch_model.bin")) else ""
            raise DataError(f"[weights] {_where(source)}: expected the file {file}, got none{other}")
        for name, one in stored_in(file).items():
            if name in stored:
                raise UsageError(f"[weights] {file}: expected each tensor in one file, got {name} in {stored[name].file} as well")
            stored[name] = one
    return stored


def _where(source: Union[Path, Sequence[Path]]) -> str:
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else ", ".join(map(os.fspath, source))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _write_weights(base: str, stored: Mapping[str, Stored], state: Mapping[str, Source], conversions: Sequence[Conversion],
                   max_shard_size: int) -> None:
    """Writes BASE.safetensors, or several files and their index."""
    made = [conversion.shapes(state) for conversion in conversions]
    shapes = {name: one for each in made for name, one in each.items()}
    shards: list[dict[str, Any]] = [{}]
    held = total = 0
    for name, (dtype, shape) in shapes.items():
        size = math.prod(shape) * dtype.itemsize
        if shards[-1] and held + size > max_shard_size:
            shards.append({})
            held = 0
        shards[-1][name] = dtype, shape
        held, total = held + size, total + size
    if len(shards) == 1 and shapes.keys() == stored.keys() and all(
            not one.changes_values and name == one.sources[0] for one, each in zip(conversions, made) for name in each):
        return _link(next(iter(stored.values())).file, f"{base}.safetensors")
    count = len(shards)
    files = [f"{base}-{at + 1:05}-of-{count:05}.safetensors" if count > 1 else f"{base}.safetensors" for at in range(count)]
    with contextlib.ExitStack() as opened:
        writers = {}
        for file, shard in zip(files, shards):
            writers.update(dict.fromkeys(shard, opened.enter_context(Writer(file, shard))))
        for conversion in conversions:
            if not conversion.changes_values:
                for name in conversion.shapes(state):
                    writers[name].copy(name, state[conversion.sources[0]])
                continue
            for part in conversion.split(state) if conversion.parts() == "split" else [
                    conversion.made({name: state[name].whole() for name in conversion.sources})]:
                for name, tensor in part.items():
                    writers[name].write(name, tensor)
    if count > 1:
        index = {"metadata": {"total_parameters": sum(math.prod(shape) for dtype, shape in shapes.values()), "total_size": total},
                 "weight_map": {name: os.path.basename(file) for file, shard in zip(files, shards) for name in shard}}
        _write(f"{base}.safetensors.index.json", (json.dumps(index, indent=2, sort_keys=True) + "\n").encode())


def _link(file: str, to: str) -> None:
    """Gives a file a second name, or copies it where that is not possible."""
    from ..errors import _system_errors

    with contextlib.suppress(OSError):  # another file system, or one without hard links
        os.link(file, to)
        return
    with _system_errors(f"copy {file} to {to}"):
        shutil.copyfile(file, to)
        with open(to, "rb") as copied:
            os.fsync(copied.fileno())


def _write(path: str, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _new_folder(out: str) -> Iterator[str]:
    """Yields a folder OUT.partial-PID, which becomes `out` at the end, or is removed if an exception ends the block."""
    from ..errors import UsageError, _system_errors

    out = os.path.abspath(out)
    part = f"{out}.partial-{os.getpid()}"
    if os.path.lexists(out):
        raise UsageError(f"out: expected the name of a new folder, got {out}, which exists: give another name, or remove it")
    with _system_errors(f"make the folder {part}"):
        os.makedirs(os.path.dirname(out), exist_ok=True)
        _remove_leftovers(out)
        os.mkdir(part)
        lock = os.open(part, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # raised by a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield part
        with _system_errors(f"put {out} in place"):
            os.fsync(lock)
            os.rename(part, out)
            parent = os.open(os.path.dirname(out), os.O_RDONLY)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)
    finally:
        os.close(lock)
        shutil.rmtree(part, ignore_errors=True)


def _remove_leftovers(out: str) -> None:
    """Removes the partial folders of processes that are dead: nobody holds the locks of these folders."""
    start = os.path.basename(out) + ".partial-"
    for entry in list(os.scandir(os.path.dirname(out))):
        if not entry.name.startswith(start) or not entry.name[len(start) :].isdigit():
            continue
        with contextlib.suppress(OSError):
            lock = os.open(entry.path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path)
            finally:
                os.close(lock)
