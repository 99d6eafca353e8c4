"""transformers' TrainingArguments as flags: what is taken, what is said, what is refused."""

import dataclasses
import json
import warnings

import pytest

import spillway
from spillway import from_training_arguments as flags_of


def test_what_fine_tuning_scripts_say():
    assert flags_of(dict(
        output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=8, learning_rate=2e-5, num_train_epochs=3,
        warmup_steps=10, lr_scheduler_type="cosine", weight_decay=0.01, adam_beta2=0.95, max_grad_norm=0.3, bf16=True,
        gradient_checkpointing=True, optim="adamw_bnb_8bit", logging_steps=10, save_strategy="steps", save_steps=200, save_total_limit=3,
        eval_strategy="steps", eval_steps=50, report_to="none", seed=7, max_length=2048, packing=True)) == {
            "out": "out", "micro_batch_size": 4, "gradient_accumulation_steps": 8, "learning_rate": 2e-5, "epochs": 3.0,
            "warmup_steps": 10, "lr_schedule": "cosine", "min_lr_ratio": 0.0, "weight_decay": 0.01, "betas": (0.9, 0.95),
            "gradient_clipping": 0.3, "precision": "bf16", "recompute": "block", "optimizer": "adamw", "moments": "8bit", "log_every": 10,
            "checkpoint_every": 200, "keep": 3, "validate_every": 50, "tensorboard": False, "seed": 7, "sequence_length": 2048,
            "packing": True}
    assert flags_of(dict(max_steps=100, num_train_epochs=3, warmup_ratio=0.03)) == {"steps": 100, "warmup_steps": 3}
    assert flags_of(dict(max_steps=-1, num_train_epochs=2)) == {"epochs": 2.0}
    assert flags_of(dict(dataloader_drop_last=True)) == {"drop_last": True}
    assert flags_of(dict(dataloader_drop_last=False)) == {}
    assert flags_of(dict(fp16=False, bf16=False)) == {"precision": "fp32"}
    assert flags_of(dict(save_strategy="epoch")) == {"checkpoint_every": "1epoch"}
    assert flags_of(dict(save_strategy="no")) == {"no_final_checkpoint": True}
    assert flags_of({}) == {}


def test_the_run_is_that_of_the_flags(flags):
    del flags["micro_batch_size"], flags["steps"], flags["learning_rate"], flags["checkpoint_every"], flags["out"], flags["tensorboard"]
    theirs = dict(output_dir=str(flags["data"].parent / "run"), per_device_train_batch_size=2, max_steps=3, learning_rate=1e-3, save_steps=2,
                  weight_decay=0.1, lr_scheduler_type="linear", deepspeed={"gradient_clipping": 0.5, "zero_optimization": {"stage": 1}})
    steps = []
    result = spillway.Trainer(**flags, **flags_of(theirs)).train(steps.append, log=lambda line: None)
    assert result.finished and [e.step for e in steps] == [1, 2, 3]
    config = json.loads((flags["data"].parent / "run" / "config.json").read_text())
    assert (config["micro_batch_size"], config["gradient_clipping"], config["min_lr_ratio"], config["checkpoint_every"]) == (2, 0.5, 0, "2")


@pytest.mark.parametrize("arguments, words", [
    (dict(optim="galore_adamw"), r"\[optim\] expected one of adamw_torch"),
    (dict(lr_scheduler_type="reduce_lr_on_plateau"), r"\[lr_scheduler_type\] expected one of linear"),
    (dict(lr_scheduler_type="cosine", lr_scheduler_kwargs={"num_cycles": 2}), "lr_scheduler_kwargs"),
    (dict(warmup_ratio=0.1, num_train_epochs=1), r"\[warmup_ratio\] expected warmup_steps"),
    (dict(save_strategy="steps"), r"\[save_steps\] expected a number of steps"),
    (dict(label_smoothing_factor=0.1), r"\[label_smoothing_factor\]"),
    (dict(fsdp="full_shard"), "zero_stage=3"),
    (dict(bf16=True, fp16=True), r"\[bf16\] expected"),
    (dict(per_device_batch=3), r"\[per_device_batch\] expected a name of transformers.TrainingArguments"),
])
def test_what_there_is_not_is_refused_by_name(arguments, words):
    with pytest.raises(spillway.UsageError, match=words):
        flags_of(arguments)


# transformers passes each optimizer only the arguments that it has: adam_epsilon to AdamW, the betas to AdamW and Lion.
@pytest.mark.parametrize("optim, expected", [
    ("adamw_torch", dict(optimizer="adamw", eps=1e-8, betas=(0.9, 0.999))),
    ("adamw_torch_fused", dict(optimizer="adamw", eps=1e-8, betas=(0.9, 0.999))),
    ("adamw_torch_xla", dict(optimizer="adamw", eps=1e-8, betas=(0.9, 0.999))),
    ("adamw_torch_npu_fused", dict(optimizer="adamw", eps=1e-8, betas=(0.9, 0.999))),
    ("adamw_bnb_8bit", dict(optimizer="adamw", eps=1e-8, betas=(0.9, 0.999), moments="8bit")),
    ("adamw_8bit", dict(optimizer="adamw", eps=1e-8, betas=(0.9, 0.999), moments="8bit")),
    ("paged_adamw_32bit", dict(optimizer="adamw", eps=1e-8, betas=(0.9, 0.999))),
    ("paged_adamw_8bit", dict(optimizer="adamw", eps=1e-8, betas=(0.9, 0.999), moments="8bit")),
    ("sgd", dict(optimizer="sgd")), ("adagrad", dict(optimizer="adagrad")), ("rmsprop", dict(optimizer="rmsprop")),
    ("rmsprop_bnb", dict(optimizer="rmsprop")), ("rmsprop_bnb_32bit", dict(optimizer="rmsprop")),
    ("lion_32bit", dict(optimizer="lion", betas=(0.9, 0.999))), ("paged_lion_32bit", dict(optimizer="lion", betas=(0.9, 0.999))),
    ("lion_8bit", dict(optimizer="lion", betas=(0.9, 0.999), moments="8bit")),
    ("paged_lion_8bit", dict(optimizer="lion", betas=(0.9, 0.999), moments="8bit")),
])
def test_each_optimizer_gets_what_it_has(flags, optim, expected):
    read = flags_of(dict(optim=optim, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8))
    assert read == expected
    spillway.Trainer(**{**flags, **read})  # none of the resulting flags is refused


@pytest.mark.parametrize("optim", [
    "adafactor", "adamw_anyprecision", "adamw_torch_4bit", "adamw_torch_8bit", "ademamix", "ademamix_8bit", "paged_ademamix_32bit",
    "paged_ademamix_8bit", "rmsprop_bnb_8bit", "galore_adamw", "galore_adamw_8bit", "galore_adafactor", "galore_adamw_layerwise",
    "galore_adamw_8bit_layerwise", "galore_adafactor_layerwise", "lomo", "adalomo", "grokadamw", "schedule_free_radam",
    "schedule_free_adamw", "schedule_free_sgd", "apollo_adamw", "apollo_adamw_layerwise", "stable_adamw",
])
def test_other_optimizers_are_refused_by_name(optim):
    with pytest.raises(spillway.UsageError, match=rf"\[optim\] expected one of adamw_torch.*, got '{optim}'"):
        flags_of(dict(optim=optim))


# The optimizer and scheduler of the DeepSpeed file are used, and the arguments fill in its "auto" values.
def test_a_deepspeed_configuration_keeps_its_optimizer():
    theirs = {"optimizer": {"type": "SGD", "params": {"lr": "auto", "momentum": 0.9}}, "scheduler": {"type": "WarmupLR", "params": {}}}
    read = flags_of(dict(optim="adamw_torch", learning_rate=2e-5, adam_epsilon=1e-8, adam_beta1=0.9, weight_decay=0.1, warmup_steps=7,
                         lr_scheduler_type="cosine", deepspeed=theirs))
    del read["deepspeed"]
    assert read == {"learning_rate": 2e-5}


def test_what_has_no_part_is_said():
    with pytest.warns(UserWarning, match=": torch_compile, dataloader_pin_memory"):
        assert flags_of(dict(torch_compile=True, dataloader_pin_memory=True, ddp_backend=None)) == {}
    with pytest.raises(TypeError, match="expected transformers.TrainingArguments or a dictionary"):
        flags_of("out")


@dataclasses.dataclass
class Arguments:
    output_dir: str = "out"
    per_device_train_batch_size: int = 8
    label_smoothing_factor: float = 0.0
    ddp_timeout: int = 1800
    something_new: int = 3
    max_steps: int = -1
    num_train_epochs: float = 3.0


def test_of_an_object_defaults_are_taken_and_other_values_said():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert flags_of(Arguments()) == {"out": "out", "micro_batch_size": 8, "epochs": 3.0}
    with pytest.warns(UserWarning, match=": ddp_timeout, something_new"):
        flags_of(Arguments(ddp_timeout=5, something_new=4))
    with pytest.raises(spillway.UsageError, match="label_smoothing_factor"):
        flags_of(Arguments(label_smoothing_factor=0.2))
