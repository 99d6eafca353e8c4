#!/usr/bin/env python3
"""Both ways between Spillway and Hugging Face transformers. Needs torch and transformers (any virtual environment); run by hand:

    python tests/e2e/with_transformers.py build/release/spillway

For GPT-2 and Llama: transformers makes a folder, `train --model` trains it, `export` writes it, transformers loads that and must give the
validation loss that Spillway printed, on the same held-out windows; and an export of the untouched folder must give the same logits.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

T, VOCABULARY = 32, 97
program = pathlib.Path(sys.argv[1]).resolve()
torch.manual_seed(0)
models = {
    "gpt2": GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=48, n_layer=3, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)),
    "llama": LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                                          num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False)),
}
tokens = [(i * i + 3 * i) % VOCABULARY for i in range(4000)]


def run(where, *args):
    done = subprocess.run([program, *args], cwd=where, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


for name, model in models.items():
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        (where / "tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        model.eval().save_pretrained(where / "made")
        run(where, "export", "made", "--out", "copy")
        x = torch.tensor(tokens[:3 * T]).view(3, T)
        with torch.no_grad():
            same = torch.equal(model(x).logits, AutoModelForCausalLM.from_pretrained(where / "copy").eval()(x).logits)
        assert same, "export changed the logits"

        run(where, "train", "--model", "made", "--data", "tokens.bin", "--sequence-length", str(T), "--micro-batch-size", "4", "--steps", "30",
            "--learning-rate", "1e-3", "--validation-fraction", "0.1", "--out", "run", "--nvme", "scratch", "--place-optimizer", "nvme",
            "--device-memory", "64MiB", "--host-memory", "64MiB")
        ours = json.loads((where / "run/metrics.jsonl").read_text().splitlines()[-1])["validation_loss"]
        run(where, "export", "run", "--out", "trained")
        windows = (len(tokens) - 1) // T
        held_out = round(windows * 0.1)
        rows = [tokens[w * T:w * T + T + 1] for w in range(windows - held_out, windows)]
        data = torch.tensor(rows)
        trained = AutoModelForCausalLM.from_pretrained(where / "trained").eval()
        with torch.no_grad():
            logits = trained(data[:, :-1]).logits
            theirs = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), data[:, 1:].reshape(-1)).item()
        relative = abs(ours - theirs) / theirs
        print(f"{name}: validation loss ours {ours:.7f}, transformers on the export {theirs:.7f}, relative difference {relative:.1e}")
        assert relative < 2e-5
