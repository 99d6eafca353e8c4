#!/usr/bin/env python3
"""Makes tests/data/choices: a small random GPT-2 on bytes, and rows whose answers are those that transformers finds the likeliest, by sum
(rows.jsonl) and by byte (rows_by_bytes.jsonl). Prompt and choice are split as in EleutherAI's lm-evaluation-harness, whose acc_norm is by character.

Needs torch, transformers and safetensors (PyPI), on a CPU. Writes into the folder named on the command line.
"""
import json
import random
import sys
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

POSITIONS = 64
out = Path(sys.argv[1])
torch.manual_seed(3)
random.seed(3)
config = GPT2Config(vocab_size=256, n_positions=POSITIONS, n_embd=16, n_layer=2, n_head=2, initializer_range=0.4, resid_pdrop=0, embd_pdrop=0,
                    attn_pdrop=0)
model = GPT2LMHeadModel(config).eval()
model.save_pretrained(out)
model = model.double()


def likelihood(prompt, choice):
    """Spaces at the prompt's end belong to the choice; the last POSITIONS + 1 bytes are in view."""
    stripped = prompt.rstrip()
    whole = list((prompt + choice).encode())
    counted = len(whole) - len(stripped.encode())
    whole = whole[-(POSITIONS + 1):]
    logits = model(torch.tensor([whole[:-1]])).logits[0].log_softmax(-1)
    return sum(logits[i - 1, whole[i]].item() for i in range(len(whole) - counted, len(whole)))


def text(most):
    return "".join(random.choice("abcdefgh  ,.é") for _ in range(random.randint(1, most)))


rows = {"rows.jsonl": [], "rows_by_bytes.jsonl": []}
while min(map(len, rows.values())) < 30:
    prompt = "p" + text(90 if len(rows["rows.jsonl"]) % 5 == 0 else 30)
    choices = [text(12).strip() or "z" for _ in range(random.randint(2, 5))]
    if len(set(choices)) < len(choices):
        continue
    sums = [likelihood(prompt, choice) for choice in choices]
    by_bytes = [s / len(choice.encode()) for s, choice in zip(sums, choices)]
    for name, values in (("rows.jsonl", sums), ("rows_by_bytes.jsonl", by_bytes)):
        first, second = sorted(values, reverse=True)[:2]
        if first - second > 1e-3:  # beyond what f32 rounds
            rows[name].append({"prompt": prompt, "choices": choices, "answer": values.index(first)})
for name, lines in rows.items():
    (out / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in lines[:30]))
(out / "generation_config.json").unlink(missing_ok=True)
