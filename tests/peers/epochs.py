#!/usr/bin/env python3
"""Epochs beside transformers' Trainer: steps, loss and gradient norm of each, over rows that do not fill the last batch.

  python tests/peers/epochs.py build/release/spillway

Needs torch, transformers and accelerate. Rows of different lengths, in the order of the file, for several numbers of rows, batches,
accumulations and epochs; fp32 on the CPU, a tiny GPT-2, plain SGD at a constant rate. Exit status 1 where a number of steps differs, or a loss
or a norm by more than 1e-5 of itself. (Trainer logs the mean of its steps' losses, rounded to four digits: losses are taken from its loss.)
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

LENGTH, RATE = 12, 0.05
CASES = [(10, 4, 1, 1), (10, 4, 1, 3), (10, 2, 2, 2), (3, 8, 1, 2), (7, 2, 4, 1), (20, 1, 1, 0.29), (10, 4, 1, 1.5)]  # rows, batch, accumulation, epochs


def rows_of(count):
    return [[1 + (7 * i + 3 * t * t) % 95 for t in range(4 + i % 8)] for i in range(count)]


def collate(rows):
    pad = lambda key, value: torch.tensor([r[key] + [value] * (LENGTH - len(r[key])) for r in rows])
    return {"input_ids": pad("input_ids", 0), "labels": pad("labels", -100), "attention_mask": pad("attention_mask", 0)}


class InOrder(Trainer):
    """Rows in the order of the file; adds up the loss of each step's micro-batches, which are weighted by the step's targets."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def training_step(self, *arguments, **named):
        loss = super().training_step(*arguments, **named)
        self.losses[-1] += loss.item()
        return loss


class Steps(TrainerCallback):
    def __init__(self, losses, norms):
        self.losses, self.norms = losses, norms

    def on_step_begin(self, *_, **__):
        self.losses.append(0.0)

    def on_log(self, args, state, control, logs=None, **_):
        if "grad_norm" in logs:
            self.norms.append(float(logs["grad_norm"]))


def theirs(model, rows, batch, accumulation, epochs, folder):
    losses, norms = [], []
    arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
                                  num_train_epochs=epochs, learning_rate=RATE, lr_scheduler_type="constant", optim="sgd", weight_decay=0.0,
                                  max_grad_norm=1e9, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
    data = [{"input_ids": r, "labels": [-100] + r[1:], "attention_mask": [1] * len(r)} for r in rows]  # the first is nobody's target
    trainer = InOrder(model=model, args=arguments, train_dataset=data, data_collator=collate, callbacks=[Steps(losses, norms)])
    trainer.losses = losses
    trainer.train()
    return losses, norms


def ours(program, model, rows, batch, accumulation, epochs, folder):
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps({"input_ids": r}) + "\n" for r in rows))
    command = [program, "train", "--model", model, "--tokenizer", "bytes", "--data", data, "--packing", "off", "--data-order", "sequential",
               "--sequence-length", LENGTH, "--micro-batch-size", batch, "--gradient-accumulation-steps", accumulation, "--epochs", epochs,
               "--optimizer", "sgd", "--learning-rate", RATE, "--lr-schedule", "constant", "--warmup-steps", 0, "--weight-decay", 0,
               "--gradient-clipping", 0, "--precision", "fp32", "--device", "cpu", "--host-memory", "400MiB", "--tensorboard", "off",
               "--no-final-checkpoint", "--quiet", "--out", folder / "run"]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines], [line["grad_norm"] for line in lines]


def main():
    wrong = 0
    for count, batch, accumulation, epochs in CASES:
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            torch.manual_seed(3)
            model = GPT2LMHeadModel(GPT2Config(vocab_size=96, n_positions=16, n_embd=32, n_layer=2, n_head=4, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0,
                                               bos_token_id=None, eos_token_id=None))
            model.save_pretrained(folder / "model")
            rows = rows_of(count)
            mine = ours(sys.argv[1], folder / "model", rows, batch, accumulation, epochs, folder)
            want = theirs(model, rows, batch, accumulation, epochs, folder / "trainer")
            same_steps = len(mine[0]) == len(want[0]) == len(want[1])
            off = max((abs(a - b) / b for m, w in zip(mine, want) for a, b in zip(m, w)), default=1)
            right = same_steps and off < 1e-5
            wrong += not right
            print(f"{count} rows, {batch} x {accumulation}, {epochs} epochs: {len(mine[0])} steps, Trainer {len(want[0])}; "
                  f"losses and norms differ by at most {off:.1e}{'' if right else ': WRONG'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
