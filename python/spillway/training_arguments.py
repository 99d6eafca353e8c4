"""Converts transformers.TrainingArguments to the flags of `spillway train`."""

from __future__ import annotations

import os
import warnings

from .errors import UsageError, UsageTypeError

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable

_SAME = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "seed": "seed",
    "per_device_train_batch_size": "micro_batch_size",
    "max_grad_norm": "gradient_clipping",
    "output_dir": "out",
    "logging_steps": "log_every",
    "save_total_limit": "keep",
    "max_length": "sequence_length",
    "max_seq_length": "sequence_length",
}
_OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_torch_xla": "adamw", "adamw_torch_npu_fused": "adamw",
    "adamw_hf": "adamw", "adamw_apex_fused": "adamw",
    "adamw_8bit": "adamw", "adamw_bnb_8bit": "adamw", "paged_adamw_8bit": "adamw", "paged_adamw_32bit": "adamw", "paged_adamw": "adamw",
    "sgd": "sgd", "adagrad": "adagrad", "rmsprop": "rmsprop", "rmsprop_bnb": "rmsprop", "rmsprop_bnb_32bit": "rmsprop",
    "lion_32bit": "lion", "lion_8bit": "lion", "paged_lion_32bit": "lion", "paged_lion_8bit": "lion",
}
_SCHEDULES = {
    "linear": ("linear", 0.0), "cosine": ("cosine", 0.0), "polynomial": ("polynomial", 0.0), "constant": ("constant", None),
    "constant_with_warmup": ("constant", None), "cosine_with_min_lr": ("cosine", 0.0),
}
# Arguments that would change the numbers or the files in a way that Spillway does not support, and what to do instead.
_REFUSED = {
    "label_smoothing_factor": "Spillway does not have it",
    "neftune_noise_alpha": "Spillway does not have it",
    "fsdp": "use zero_stage=3, which shards weights over ranks",
    "optim_args": "pass them as flags, such as momentum=0.9",
    "optim_target_modules": "Spillway does not have it",
    "push_to_hub": "upload a checkpoint folder with huggingface_hub",
    "load_best_model_at_end": "use train(keep_best=True), and checkpoint=\"best\" afterwards",
    "auto_find_batch_size": "use spillway.plan(), which shows beforehand what fits",
    "data_seed": "seed sets the order of the data too",
    "group_by_length": "use packing=\"on\", which avoids padding",
}
# Arguments that matter only to the Trainer of transformers and are ignored here.
_WITHOUT_PART = {
    "logging_strategy", "logging_first_step", "logging_dir", "logging_nan_inf_filter", "log_level", "log_level_replica", "log_on_each_node",
    "disable_tqdm", "run_name", "project", "eval_accumulation_steps", "per_device_eval_batch_size", "eval_delay", "eval_on_start",
    "prediction_loss_only", "remove_unused_columns", "dataloader_pin_memory", "dataloader_persistent_workers",
    "dataloader_prefetch_factor", "torch_compile", "torch_compile_backend", "torch_compile_mode", "use_liger_kernel", "use_cache",
    "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_backend", "ddp_timeout", "local_rank", "debug",
    "do_train", "do_eval", "do_predict", "overwrite_output_dir", "save_on_each_node", "save_safetensors", "save_only_model",
    "skip_memory_metrics", "gradient_checkpointing_kwargs", "torch_empty_cache_steps", "average_tokens_across_devices",
}
_MISSING = object()


class _Reading:
    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.flags: dict[str, Any] = {}

    def take(self, name: str, otherwise: Any = None) -> Any:
        value = self.given.pop(name, None)
        return otherwise if value is None else value

    def refuse(self, name: str, expected: str, value: Any) -> UsageError:
        return UsageError(f"[{name}] expected {expected}, got {value!r}")


def _word(value: Any) -> str:
    return str(getattr(value, "value", value))  # members of transformers' enumerations have a value


def _length(read: _Reading) -> None:
    steps, epochs = read.take("max_steps", -1), read.take("num_train_epochs")
    if steps > 0:
        read.flags["steps"] = int(steps)
    elif epochs is not None:
        read.flags["epochs"] = float(epochs)


def _precision(read: _Reading) -> None:
    bf16, fp16, tf32 = read.given.pop("bf16", None), read.given.pop("fp16", None), read.given.pop("tf32", None)
    if bf16 and fp16:
        raise read.refuse("bf16", "bf16 or fp16", "both")
    if bf16 or fp16 or tf32:
        read.flags["precision"] = "bf16" if bf16 else "fp16" if fp16 else "tf32"
    elif bf16 is not None or fp16 is not None:
        read.flags["precision"] = "fp32"


def _optimizer(read: _Reading) -> None:
    name = read.take("optim")
    if name is not None:
        if _word(name) not in _OPTIMIZERS:
            raise read.refuse("optim", "one of " + ", ".join(_OPTIMIZERS), _word(name))
        read.flags["optimizer"] = _OPTIMIZERS[_word(name)]
        if "8bit" in _word(name):
            read.flags["moments"] = "8bit"
    # As in transformers, adam_epsilon applies only to AdamW, and the betas only to AdamW and Lion. Other optimizers keep their defaults.
    beta1, beta2, eps = read.take("adam_beta1"), read.take("adam_beta2"), read.take("adam_epsilon")
    rule = read.flags.get("optimizer", "adamw")
    if eps is not None and rule == "adamw":
        read.flags["eps"] = eps
    if (beta1 is not None or beta2 is not None) and rule in ("adamw", "lion"):
        read.flags["betas"] = (0.9 if beta1 is None else beta1, 0.999 if beta2 is None else beta2)


def _schedule(read: _Reading) -> None:
    name, more = read.take("lr_scheduler_type"), dict(read.take("lr_scheduler_kwargs", {}) or {})
    warmup, ratio = read.take("warmup_steps"), read.take("warmup_ratio", 0)
    if name is not None:
        if _word(name) not in _SCHEDULES:
            raise read.refuse("lr_scheduler_type", "one of " + ", ".join(_SCHEDULES), _word(name))
        read.flags["lr_schedule"], least = _SCHEDULES[_word(name)]
        least = more.pop("min_lr_rate", least) if _word(name) == "cosine_with_min_lr" else least
        if least is not None:
            read.flags["min_lr_ratio"] = float(least)
        if _word(name) == "polynomial" and "power" in more:
            read.flags["lr_power"] = float(more.pop("power"))
    if more:
        raise read.refuse("lr_scheduler_kwargs", "no keys except min_lr_rate for cosine_with_min_lr and power for polynomial", more)
    share = ratio or (warmup if isinstance(warmup, float) and 0 < warmup < 1 else 0)
    if share:
        if "steps" not in read.flags:
            raise read.refuse("warmup_steps" if not ratio else "warmup_ratio",
                              "warmup_steps as a number of steps, because max_steps is not given", share)
        warmup = -(-share * read.flags["steps"] // 1)
    if warmup is not None:
        read.flags["warmup_steps"] = int(warmup)


def _saves(read: _Reading) -> None:
    when, every = read.take("save_strategy"), read.take("save_steps")
    if when is None:
        when = None if every is None else "steps"
    if when is None:
        return
    if _word(when) == "no":
        read.flags["no_final_checkpoint"] = True
    elif _word(when) == "epoch":
        read.flags["checkpoint_every"] = "1epoch"
    elif _word(when) == "steps":
        if every is None or every < 1 or every != int(every):
            raise read.refuse("save_steps", "a number of steps", every)
        read.flags["checkpoint_every"] = int(every)
    else:
        raise read.refuse("save_strategy", "no, steps or epoch (best: train(keep_best=True))", _word(when))


def _validation(read: _Reading) -> None:
    when, every = _word(read.take("eval_strategy", "no")), read.take("eval_steps")
    if when == "steps":
        every = every or read.flags.get("log_every")
        if every is None or every < 1 or every != int(every):
            raise read.refuse("eval_steps", "a number of steps", every)
        read.flags["validate_every"] = int(every)
    elif when == "epoch":
        warnings.warn("eval_strategy: epoch is not supported; validation runs at the end, and every validate_every steps if that is given",
                      stacklevel=4)
    elif when != "no":
        raise read.refuse("eval_strategy", "no, steps or epoch", when)


def _rest(read: _Reading) -> None:
    checkpointing = read.take("gradient_checkpointing")
    if checkpointing is not None:
        read.flags["recompute"] = "block" if checkpointing else "auto"
    if read.take("use_cpu"):
        read.flags["device"] = "cpu"
    if read.take("dataloader_drop_last"):
        read.flags["drop_last"] = True
    workers = read.take("dataloader_num_workers", 0)
    if workers > 0:
        read.flags["workers"] = workers
    packing = read.given.pop("packing", None)
    if packing is not None:
        read.flags["packing"] = bool(packing)
    where = read.take("resume_from_checkpoint")
    if where:
        read.flags["resume"] = "must" if where is True else os.fspath(where)
    reports = read.take("report_to")
    reports = [reports] if isinstance(reports, str) else reports
    if reports and "none" in reports:
        read.flags["tensorboard"] = False
    configuration = read.take("deepspeed")
    if isinstance(configuration, dict):
        read.flags["deepspeed"] = _file_of(configuration)
    elif configuration is not None:
        read.flags["deepspeed"] = configuration
    _leave_to_deepspeed(read, configuration)


# As in transformers, the optimizer and scheduler of a DeepSpeed configuration take precedence; the arguments fill in its "auto" values.
def _leave_to_deepspeed(read: _Reading, configuration: Any) -> None:
    if isinstance(configuration, (str, os.PathLike)):
        import json

        try:
            with open(configuration, encoding="utf-8") as file:
                configuration = json.load(file)
        except (OSError, ValueError):
            return  # the program reads the file too, and reports what is wrong
    for section, always, filled in (("optimizer", ("optimizer", "moments"),
                                     {"learning_rate": "lr", "betas": "betas", "eps": "eps", "weight_decay": "weight_decay"}),
                                    ("scheduler", ("lr_schedule", "min_lr_ratio", "lr_power"), {"warmup_steps": "warmup_num_steps"})):
        theirs = configuration.get(section) if isinstance(configuration, dict) else None
        if not isinstance(theirs, dict):
            continue
        params = theirs.get("params") or {}
        for flag in [*always, *(flag for flag, key in filled.items() if params.get(key) != "auto")]:
            read.flags.pop(flag, None)


def _file_of(configuration: dict[str, Any]) -> str:
    """Writes the configuration to a temporary file and returns its path. The file exists until the process ends, because Trainers may be made
    from the flags at any time."""
    import atexit  # imported here, so that importing spillway stays fast
    import json
    import tempfile

    handle, path = tempfile.mkstemp(suffix=".json", prefix="deepspeed-")
    with os.fdopen(handle, "w") as file:
        json.dump(configuration, file)
    atexit.register(lambda: os.path.exists(path) and os.remove(path))
    return path


_READERS: list[Callable[[_Reading], None]] = [_length, _precision, _optimizer, _schedule, _saves, _validation, _rest]


def from_training_arguments(arguments: Any) -> dict[str, Any]:
    """Converts transformers.TrainingArguments to flags: Trainer(model=..., data=..., **from_training_arguments(args)).

    Of a TrainingArguments object (or another dataclass with its names) all values are used, also defaults; of a dictionary its keys.
    Arguments that concern only how transformers works are left out, with a warning if they differ from their defaults; arguments that
    would change numbers and are not supported raise a UsageError that names them. The warm-up rate at step s = 0, 1 .. is
    lr (s + 1) / (W + 1), where transformers has lr s / W.
    """
    defaults: dict[str, Any] = {}
    if isinstance(arguments, dict):
        given = dict(arguments)
    elif hasattr(arguments, "__dataclass_fields__") and not isinstance(arguments, type):
        given = {name: getattr(arguments, name, None) for name in arguments.__dataclass_fields__}
        defaults = {name: field.default for name, field in arguments.__dataclass_fields__.items()}
    else:
        raise UsageTypeError(f"arguments: expected transformers.TrainingArguments or a dictionary of its names, got {type(arguments).__name__}")
    read = _Reading(given)
    for name, flag in _SAME.items():
        value = read.take(name)
        if value is not None:
            read.flags[flag] = value
    for reader in _READERS:
        try:
            reader(read)
        except UsageError:
            raise
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise UsageError(f"[arguments] expected values of the types in transformers.TrainingArguments, got another: {error}") from error
    left_out = []
    for name, value in read.given.items():
        if value is None or value is False or value == defaults.get(name, _MISSING) or value in (0, "", [], {}):
            if name in _REFUSED or name in _WITHOUT_PART or defaults:
                continue
        if name in _REFUSED:
            raise read.refuse(name, f"this argument to be left out ({_REFUSED[name]})", value)
        if name in _WITHOUT_PART or defaults:
            left_out.append(name)
            continue
        raise UsageError(f"[{name}] expected a name of transformers.TrainingArguments that has a counterpart in Spillway: pass flags of "
                         "spillway train directly to Trainer")
    if left_out and not defaults:
        warnings.warn("these arguments have no effect in Spillway: " + ", ".join(left_out), stacklevel=2)
    elif left_out:
        warnings.warn("these arguments differ from their defaults but have no effect in Spillway: " + ", ".join(left_out), stacklevel=2)
    return read.flags
