#!/usr/bin/env python3
"""`export --format onnx` of every model kind beside PyTorch: logits of onnxruntime (CPU), in one call, in two by way of the key/value cache,
of rows padded on the left, of adapters merged; in fp32 and fp16. transformers' models are drawn at random (families.py), torchvision's too.

  python tests/peers/onnx_models.py build/release/spillway [seed ...]

Needs torch, transformers, peft, torchvision, onnx, onnxruntime, safetensors and numpy. Both sides compute in fp32, in another order: the largest
difference of a logit, relative to the largest logit, is at most 2e-5 (what families.py allows a loss); in fp16, whose weights have 11 bits, 1e-2.
onnx's checker reads every graph. Prints one line a model; exit status 1 if one does not hold.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from peft import PeftModel
from safetensors.torch import save_file

from families import FAMILIES, VOCABULARY, random_config, randomize
from torchvision_models import MODELS

ROWS, T, FIRST, CLASSES = 3, 20, 13, 4
REFUSED = ("ministral3", "longrope", "gemma4", "gpt_oss")  # the first two rotate by the length of a row, then heads by layer, and sinks
CLOSE = {"fp32": 2e-5, "fp16": 1e-2}


def export(program, model, out, *more):
    done = subprocess.run([program, "export", model, "--out", out, "--format", "onnx", *more], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    onnx.checker.check_model(str(out / "model.onnx"), full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(str(out / "model.onnx"), options, providers=["CPUExecutionProvider"])


def difference(got, want):
    assert got.shape == want.shape and got.dtype == np.float32, (got.shape, want.shape, got.dtype)
    return float(np.abs(got - want).max() / np.abs(want).max())


class Language:
    """A session and the cache of what it has read."""

    def __init__(self, session):
        self.session = session
        self.names = [o.name for o in session.get_outputs()]
        self.past = {}
        for i in session.get_inputs():
            if i.name.startswith("past"):
                self.past[i.name] = np.zeros((ROWS, i.shape[1], 0, i.shape[3]), np.float16 if "float16" in i.type else np.float32)

    def __call__(self, ids, mask, positions):
        out = dict(zip(self.names, self.session.run(self.names, {"input_ids": ids, "attention_mask": mask, "position_ids": positions, **self.past})))
        self.past = {name.replace("present", "past_key_values"): value for name, value in out.items() if name != "logits"}
        return out["logits"]


def check_language(program, where, source, model, name, seed, more=()):
    ids = np.random.default_rng(seed).integers(0, VOCABULARY, (ROWS, T))
    padding = np.array([0, 3, 7])[:, None]
    masks = {"": np.ones((ROWS, T), np.int64), ", padded": (np.arange(T)[None] >= padding).astype(np.int64)}
    holds = True
    for precision in ("fp32", "fp16"):
        found = {}
        session = export(program, source, where / f"onnx-{precision}", "--dtype", precision, *more)
        for label, mask in masks.items():
            positions = np.clip(mask.cumsum(1) - 1, 0, None)
            with torch.no_grad():
                want = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask), position_ids=torch.tensor(positions)).logits.numpy()
            seen = mask.astype(bool)
            found["whole" + label] = difference(Language(session)(ids, mask, positions)[seen], want[seen])
            cached = Language(session)
            parts = [cached(ids[:, a:b], mask[:, :b], positions[:, a:b]) for a, b in ((0, FIRST), (FIRST, FIRST + 1), (FIRST + 1, T))]
            found["cached" + label] = difference(np.concatenate(parts, 1)[seen], want[seen])
        good = all(value <= CLOSE[precision] for value in found.values())
        holds &= good
        print(f"{name} {precision}: " + ", ".join(f"{k} {v:.1e}" for k, v in found.items()) + ("" if good else "  TOO FAR"), flush=True)
    return holds


def check_family(program, family, seed, where):
    rng = random.Random(f"{family} {seed}")
    torch.manual_seed(rng.randrange(1 << 30))
    if family == "gpt2":
        config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=24, n_layer=3, n_head=rng.choice([2, 3]),
                                         scale_attn_by_inverse_layer_idx=rng.random() < 0.5, activation_function=rng.choice(["gelu_new", "gelu", "relu"]),
                                         bos_token_id=1, eos_token_id=2)
    else:
        config = random_config(family, rng)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    randomize(model)
    model.save_pretrained(where / "model")
    return check_language(program, where, where / "model", model, f"{family} {seed}", seed)


def check_adapters(program, where):
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(random_config("qwen2", random.Random(5))).eval()
    randomize(model)
    model.save_pretrained(where / "model")
    np.arange(4000, dtype=np.uint16).__mod__(VOCABULARY).tofile(where / "tokens.bin")
    train = [program, "train", "--model", where / "model", "--data", where / "tokens.bin", "--lora", "4", "--steps", "3", "--learning-rate", "1e-2",
             "--sequence-length", "16", "--precision", "fp32", "--out", where / "run", "--quiet"]
    subprocess.run([str(word) for word in train], check=True, capture_output=True)
    subprocess.run([program, "export", str(where / "run"), "--out", str(where / "adapter")], check=True, capture_output=True)
    merged = PeftModel.from_pretrained(model, where / "adapter").merge_and_unload()
    refused = subprocess.run([program, "export", where / "run", "--out", where / "x", "--format", "onnx"], capture_output=True, text=True)
    assert refused.returncode != 0 and not (where / "x").exists()
    return check_language(program, where, where / "run", merged, "qwen2, adapters merged", 1, ("--merge",))


class SmallNet(torch.nn.Module):
    """PyTorch's tutorial network; LeNet with padding."""

    def __init__(self, padding, side, widths=(6, 16, 120, 84)):
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(3, widths[0], 5, padding=padding), torch.nn.Conv2d(widths[0], widths[1], 5)
        left = ((side + 2 * padding - 4) // 2 - 4) // 2
        self.fc1, self.fc2, self.fc3 = torch.nn.Linear(widths[1] * left**2, widths[2]), torch.nn.Linear(widths[2], widths[3]), torch.nn.Linear(widths[3], CLASSES)

    def forward(self, x):
        pooled = lambda x: torch.nn.functional.max_pool2d(torch.relu(x), 2)
        x = pooled(self.conv2(pooled(self.conv1(x)))).flatten(1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


IMAGES = {name: (lambda make=make: make(num_classes=CLASSES), side, config) for name, (make, side, config) in MODELS.items()} | {
    "vgg11 of 224": (lambda: MODELS["vgg11"][0](num_classes=CLASSES), 224, MODELS["vgg11"][2]),
    "alexnet of 224": (lambda: MODELS["alexnet"][0](num_classes=CLASSES), 224, MODELS["alexnet"][2]),
    "cifar_net": (lambda: SmallNet(0, 32), 32, {"model_type": "cifar_net", "hidden_sizes": [6, 16, 120, 84]}),
    "lenet": (lambda: SmallNet(2, 28), 28, {"model_type": "lenet", "hidden_sizes": [6, 16, 120, 84]}),
}


def check_images(program, name, where):
    make, side, config = IMAGES[name]
    torch.manual_seed(1)
    model = make().eval()
    for m in model.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(m.running_mean, -0.2, 0.2), torch.nn.init.uniform_(m.running_var, 0.5, 1.5)
    (where / "model").mkdir()
    save_file(model.state_dict(), where / "model/model.safetensors")
    labels = {"num_labels": CLASSES, "num_channels": 3, "image_size": side}
    (where / "model/config.json").write_text(json.dumps({**config, **labels}))
    pixels = np.random.default_rng(1).standard_normal((5, 3, side, side)).astype(np.float32)
    with torch.no_grad():
        want = model(torch.tensor(pixels)).numpy()
    holds = True
    for precision in ("fp32", "fp16"):
        session = export(program, where / "model", where / f"onnx-{precision}", "--dtype", precision)
        apart = difference(session.run(["logits"], {"pixel_values": pixels})[0], want)
        good = apart <= CLOSE[precision]
        holds &= good
        print(f"{name} {precision}: {apart:.1e}" + ("" if good else "  TOO FAR"), flush=True)
    return holds


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    seeds = [int(s) for s in sys.argv[2:]] or [1, 2]
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(2)
    holds = True
    checks = [(check_family, family, seed) for seed in seeds for family in ["gpt2", *(f for f in FAMILIES if f not in REFUSED)]]
    checks += [(check_adapters,)] + [(check_images, name) for name in IMAGES]
    for check, *given in checks:
        with tempfile.TemporaryDirectory() as folder:
            holds &= check(program, *given, pathlib.Path(folder))
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
