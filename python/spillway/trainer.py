"""`spillway train` with Python callbacks."""

from __future__ import annotations

import contextlib
import os
import sys

from . import _core, own_model
from ._core import SaveEvent, StepEvent, ValidationEvent
from .data import is_indexed, write_rows
from .errors import UsageError, UsageTypeError, _system_errors
from .flags import _text

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    import pathlib
    from typing import Any, Callable, Optional

# Maps names of Hugging Face's Trainer to those of Spillway's Trainer.
_OTHER_NAMES = {
    "train_dataset": "data=rows", "eval_dataset": "validation_data=rows", "args": "**spillway.from_training_arguments(args)",
    "callbacks": "train(on_step=..., on_validate=..., on_save=...)", "processing_class": "tokenizer=path of the tokenizer's folder",
    "data_collator": "rows with input_ids and labels, which are packed here", "compute_metrics": "train(on_validate=...)",
    "optimizers": "optimizer=name and learning_rate=rate", "epoch": "epochs=number", "max_steps": "steps=number", "lr": "learning_rate=rate",
    "batch_size": "micro_batch_size=number", "output_dir": "out=folder",
}


class TrainingResult:
    """The result of train(). `history` and what follows from it are read from the run's metrics.jsonl and cover all its starts."""

    finished: bool
    """False if the run was stopped; another train() continues it."""
    run: pathlib.Path
    checkpoint: Optional[pathlib.Path]
    """The newest checkpoint; None if none was saved."""

    def __init__(self, result: Any) -> None:
        self.finished, self.run, self.checkpoint = result.finished, result.run, result.checkpoint

    @property
    def history(self) -> list[dict[str, Any]]:
        """One dictionary for each step: step, loss, grad_norm, lr, tokens, step_ms and more; validation_loss in steps that validate."""
        import json

        rows: dict[int, dict[str, Any]] = {}
        with contextlib.suppress(FileNotFoundError), open(self.run / "metrics.jsonl", encoding="utf-8") as lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # raised by a line that is still being written
                    row = json.loads(line)
                    rows[row["step"]] = row
        return [rows[step] for step in sorted(rows)]

    @property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return [row["loss"] for row in self.history]

    @property
    def validations(self) -> list[tuple[int, float]]:
        """(step, loss) of each validation."""
        return [(row["step"], row["validation_loss"]) for row in self.history if row.get("validation_loss") is not None]

    def __repr__(self) -> str:
        return f"TrainingResult({'finished' if self.finished else 'stopped'}, run={self.run})"


class Trainer:
    """A training run with memory budgets, offloading, checkpoints, resume and metrics. Its arguments are the flags of `spillway train`.

    Trainer(model="gpt2-124m", data="kjv.txt", device_memory="1GiB", out="runs/mine").train()

    device_memory="1GiB", or 2**30, is --device-memory 1GiB, from_scratch=True a flag without a value, and a list a repeated flag. `out` is
    the run folder; the same Trainer, or the command with the same flags, resumes the run in it. Invalid flags raise UsageError here.

    `data` and `validation_data` may be rows instead of paths: any iterable of what write_rows() takes, a DataLoader or a DataFrame too. Rows
    are written to a file next to `out`, OUT.data.jsonl, so that the run can read them at any step; to resume, give the same rows, or that
    file.

    `model` may also be Modules of your own, in order: Trainer(model=[Hidden(), Answer()], name="mine", data=samples, out="runs/mine").
    Their names are their positions, or the keys of a dict. `data` is then a sequence of dictionaries, one for each sample, or a dictionary
    of arrays [samples, ...]; every sample has the same names, shapes and types. For blocks that read tokens it is a path, and
    `sequence_length` is required.

    `model` may also be a PyTorch module, or a list or dictionary of them (docs/torch.md): PyTorch computes their blocks. `data` is then a
    DataLoader, a Dataset, a list of dictionaries of tensors or a dictionary of arrays. Further arguments are `loss`, a function of (outputs,
    batch) in place of the model's own; `layers`, the names of the lists of modules at which to cut; `collate`, which makes dictionaries of
    rows; `weights`, a folder whose weights a model on the meta device begins with; and `autocast`, a type of torch.
    """

    def __init__(self, **flags: Any) -> None:
        for name in flags:
            if name in _OTHER_NAMES:
                raise UsageError(f"Trainer: expected the flags of `spillway train` as arguments, got {name}: write {_OTHER_NAMES[name]}")
        if isinstance(flags.get("model"), _core.Model):
            raise UsageTypeError("model: expected a name, a folder or Modules, got a Model: model.save(folder) writes it, then give model=folder")
        self._after_save: Optional[Callable[[SaveEvent], None]] = None
        of_torch = own_model.is_of_torch(flags.get("model"))
        self._own = of_torch or own_model.is_own(flags.get("model"))
        if self._own:
            self._training, self._after_save = _torch_training(flags) if of_torch else (_own_training(flags), None)
            return
        for name in ("data", "validation_data"):
            _check_rows(name, flags.get(name))
            if _are_rows(flags.get(name)):
                if flags.get("out") is None:
                    raise UsageError(f"{name}: expected `out` as well, because rows are written to a file next to it, or a path in "
                                     "place of rows")
                file = os.path.abspath(os.fsdecode(_text("out", flags["out"]))) + f".{name}.jsonl"
                with _system_errors(f"make the folder of {file}"):
                    os.makedirs(os.path.dirname(file), exist_ok=True)
                flags[name] = write_rows(file, flags[name])
        self._training = _core.Training(flags)

    def train(
        self,
        on_step: Optional[Callable[[StepEvent], Any]] = None,
        on_validate: Optional[Callable[[ValidationEvent], Any]] = None,
        on_save: Optional[Callable[[SaveEvent], Any]] = None,
        *,
        patience: int = 0,
        keep_best: bool = False,
        progress: Optional[bool] = None,
        log: Optional[Callable[[str], Any]] = None,
    ) -> TrainingResult:
        """Trains to the last step, without the GIL.

        Callbacks are called between steps. If one returns False, the run saves and stops after the step that is under way (result.finished is
        False); another train() continues it. An exception in one ends the run and is raised by train(), and the last checkpoint is kept.
        Ctrl-C saves and raises KeyboardInterrupt; another train() resumes. patience: the run ends after this many validations in a row
        that are no better than the best; keep_best keeps the checkpoint of the best one. progress: a tqdm bar (None: if tqdm is installed
        and stderr is a terminal or a notebook). log: called with each line that the program would print; by default lines go to stderr,
        in a notebook to stdout, unless there is a bar. A Trainer runs one train() at a time, on any thread. If the interpreter ends, a
        training thread stops as after `kill -9`.
        """
        for name, hears in (("on_step", on_step), ("on_validate", on_validate), ("on_save", on_save), ("log", log)):
            if hears is not None and not callable(hears):
                raise UsageTypeError(f"{name}: expected a function, got {type(hears).__name__}")
        bar = _bar(progress)
        hear = on_step
        if bar is not None:
            step = _stepping(bar)

            def hear(event: StepEvent) -> Any:
                step(event)
                return on_step(event) if on_step is not None else None

        if log is None and bar is None:
            log = _print
        try:
            with own_model.interrupts_between_blocks() if self._own else contextlib.nullcontext():
                return TrainingResult(self._training.run(hear, on_validate, _both(self._after_save, on_save), log, patience, keep_best))
        finally:
            if bar is not None:
                bar.close()


def _both(first: Optional[Callable[[SaveEvent], Any]], second: Optional[Callable[[SaveEvent], Any]]) -> Optional[Callable[[SaveEvent], Any]]:
    if first is None or second is None:
        return first or second

    def call(event: SaveEvent) -> Any:
        first(event)
        return second(event)

    return call


def _torch_training(flags: dict[str, Any]) -> tuple[_core.Training, Callable[[SaveEvent], None]]:
    from . import torch as of_torch

    model, name = flags.pop("model"), flags.pop("name", "torch")
    own = {key: flags.pop(key) for key in ("loss", "layers", "autocast", "collate", "weights") if key in flags}
    data, validation_data = flags.pop("data", None), flags.pop("validation_data", None)
    if data is None:
        raise UsageError("data: expected samples, such as a list of dictionaries of tensors or a DataLoader, got none")
    return of_torch.training(model, name, flags, data, validation_data, **own)


def _own_training(flags: dict[str, Any]) -> _core.Training:
    model, name = flags.pop("model"), flags.pop("name", "own")
    paths = _are_paths(flags.get("data"))
    samples = []
    for argument in ("data", "validation_data"):
        if flags.get(argument) is not None and _are_paths(flags[argument]) != paths:
            raise UsageError(f"{argument}: expected the same kind as data, samples or paths, got the other")
        samples.append(None if paths else own_model.checked_samples(flags.pop(argument, None), argument))
    if not paths and samples[0] is None:
        raise UsageError("data: expected samples, or the path of a text or a token file, got none")
    return own_model.training(model, name, flags, *samples)


def _are_paths(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return len(data) > 0 and all(isinstance(one, (str, bytes, os.PathLike)) for one in data)
    return isinstance(data, (str, bytes, os.PathLike))


def _check_rows(name: str, data: Any) -> None:
    """Says what to write for data that would be read as something else."""
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        raise UsageTypeError(f"{name}: expected paths or rows, got a LazyFrame of Polars: write {name}={name}.collect()")
    if isinstance(data, dict) and any(key in data for key in ("text", "input_ids", "prompt", "messages")):
        raise UsageTypeError(f"{name}: expected paths or rows, got a dictionary of columns ({', '.join(map(str, data))}): write "
                             f"{name}=[dict(zip(columns, row)) for row in zip(*columns.values())]")
    if isinstance(data, dict):
        sets = [key for key, value in data.items() if not isinstance(value, (str, bytes))]
        first = next((key for key in ("train", *sets) if key in data), "train")
        raise UsageTypeError(f"{name}: expected paths or rows, got a dictionary ({', '.join(map(str, data))}): write {name}=data[{first!r}] for "
                             "one of several data sets; a dictionary of arrays is for a model of your own")
    texts = [data] if isinstance(data, str) else data if isinstance(data, (list, tuple)) and _are_paths(data) else []
    if any(isinstance(one, str) and (" " in one or "\n" in one) for one in texts) and not any(os.path.exists(one) for one in texts):
        raise UsageError(f"{name}: expected paths of files, got texts that no file has as its name: write "
                         f'{name}=[{{"text": text}} for text in texts]')


def _are_rows(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return any(not isinstance(one, (str, bytes, os.PathLike)) for one in data)
    if isinstance(data, (str, bytes, os.PathLike)):
        return False
    return hasattr(data, "__iter__") or hasattr(data, "to_batches") or is_indexed(data)


def _print(line: str) -> None:
    """Prints a line of the log to stderr, in a notebook to stdout, because notebooks show stderr as an error."""
    print(line, file=sys.stdout if "ipykernel" in sys.modules else sys.stderr, flush=True)


def _bar(progress: Optional[bool]) -> Any:
    if progress is False:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if progress:
            raise
        return None
    if progress is None and not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        return None
    return tqdm(unit="step")


def _stepping(bar: Any) -> Callable[[StepEvent], None]:
    def step(event: StepEvent) -> None:
        if bar.total is None:
            bar.reset(total=event.steps)
            bar.initial = bar.n = event.step - 1
        bar.set_postfix(loss=f"{event.loss:.4f}", refresh=False)
        bar.update(1)

    return step
