#!/usr/bin/env python3
"""Models of several parts beside transformers: the language model of a folder is trained here, `export` writes the whole, and transformers
loads it: the other parts are equal to the bit, and the text's logits are those of our checkpoint.

  python tests/peers/wholes.py build/release/spillway

Needs torch, transformers, safetensors and numpy. Prints one line a model; exit status 1 if one does not hold.
"""

import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

FAMILIES = pathlib.Path(__file__).resolve().parent.parent / "data" / "families"


def check(program, folder):
    kind = transformers.AutoModelForImageTextToText
    with tempfile.TemporaryDirectory() as name:
        where = pathlib.Path(name)
        rng = random.Random(folder.name)
        np.array([rng.randrange(28) for _ in range(801)], dtype=np.uint16).tofile(where / "tokens.bin")
        flags = ["--data", "tokens.bin", "--steps", "4", "--sequence-length", "16", "--micro-batch-size", "2", "--learning-rate", "1e-2",
                 "--precision", "fp32", "--quiet", "--out", "run"]
        for words in (["train", "--model", folder, *flags], ["export", "run", "--out", "out", "--dtype", "fp32"],
                      ["export", folder, "--out", "same"]):
            subprocess.run([program, *words], check=True, cwd=where, capture_output=True)
        before, after = kind.from_pretrained(folder, dtype=torch.float32), kind.from_pretrained(where / "out", dtype=torch.float32)
        same = kind.from_pretrained(where / "same", dtype=torch.float32)
        named = dict(after.named_parameters())
        moved = [n for n, p in before.named_parameters() if not torch.equal(p, named[n])]
        kept = [n for n in named if n not in moved]
        unchanged = all(torch.equal(p, dict(same.named_parameters())[n]) for n, p in before.named_parameters())
        checkpoint = transformers.AutoModelForCausalLM.from_pretrained(where / "run" / "checkpoints" / "step-00000004", dtype=torch.float32)
        ids = torch.tensor([[rng.randrange(28) for _ in range(12)]])
        with torch.no_grad():
            difference = (checkpoint(input_ids=ids).logits - after(input_ids=ids).logits).abs().max().item()
    good = unchanged and difference < 1e-5 and all("language_model" in n or "lm_head" in n for n in moved) and len(moved) > 10
    good = good and all("vision" in n or "projector" in n for n in kept)
    print(f"{folder.name}: {len(moved)} tensors trained, {len(kept)} unchanged, logits differ by {difference:.1e}{'' if good else '  FAILED'}")
    return good


if __name__ == "__main__":
    program = str(pathlib.Path(sys.argv[1]).resolve())
    results = [check(program, folder) for folder in sorted(FAMILIES.glob("whole-*"))]
    sys.exit(0 if results and all(results) else 1)
