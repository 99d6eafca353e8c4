#!/usr/bin/env python3
"""Image models beside torchvision's, from torchvision's initial weights: the losses of some SGD steps with momentum, all weights and
running statistics after them, the evaluation before and after, and torchvision's load_state_dict(strict=True) of what export writes.

  python tests/peers/torchvision_models.py build/release/spillway [model ...]

Needs torch, torchvision, safetensors, numpy and Pillow. In fp64, so that the same arithmetic in another order agrees to 1e-9; then in fp32 after
one step, as far from fp64 as torch's fp32 (an activation whose sign the rounding changes moves all weights below it, on either side: the least of
some seeds counts). ResNet-20, which torchvision has not, is made of its blocks.
Prints two lines a model; exit status 1 if one does not hold.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision.models.resnet import BasicBlock, ResNet

STEPS, IMAGES, CLASSES, RATE, CLOSE = 3, 16, 4, 0.01, 1e-9
WHERE = ["--precision", "fp64", "--device", "cpu"]
SEEDS = 4
torch.set_num_threads(2)


class ResNet20(ResNet):
    """The stem and the three stages of section 4.2 of the paper."""

    def __init__(self, num_classes):
        super().__init__(BasicBlock, [3, 3, 3, 1], num_classes=num_classes)
        self.inplanes = 16
        self.conv1 = torch.nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.maxpool = self.layer4 = torch.nn.Identity()
        self.layer1 = self._make_layer(BasicBlock, 16, 3)
        self.layer2 = self._make_layer(BasicBlock, 32, 3, stride=2)
        self.layer3 = self._make_layer(BasicBlock, 64, 3, stride=2)
        self.fc = torch.nn.Linear(64, num_classes)


def resnet_config(widths, blocks, bottleneck=False, large_stem=True):
    layer = "bottleneck" if bottleneck else "basic"
    return {"model_type": "torchvision_resnet", "hidden_sizes": widths, "depths": blocks, "layer_type": layer, "large_stem": large_stem}


WIDE = [64, 128, 256, 512]
MODELS = {  # what makes it, side of the images, config.json
    "resnet20": (ResNet20, 32, resnet_config([16, 32, 64], [3, 3, 3], large_stem=False)),
    "resnet18": (torchvision.models.resnet18, 40, resnet_config(WIDE, [2, 2, 2, 2])),
    "resnet34": (torchvision.models.resnet34, 33, resnet_config(WIDE, [3, 4, 6, 3])),
    "resnet50": (torchvision.models.resnet50, 40, resnet_config(WIDE, [3, 4, 6, 3], bottleneck=True)),
    "vgg11": (lambda num_classes: torchvision.models.vgg11(num_classes=num_classes, dropout=0), 32, {"model_type": "vgg11", "dropout": 0}),
    "alexnet": (lambda num_classes: torchvision.models.alexnet(num_classes=num_classes, dropout=0), 70, {"model_type": "alexnet", "dropout": 0}),
}


def write_images(folder, side):
    """Pixels as both read them, and classes."""
    rng = np.random.default_rng(1)
    pixels, classes = [], []
    for i in range(IMAGES):
        label = i % CLASSES
        image = (rng.integers(0, 120, (side, side, 3)) + 45 * label * (np.arange(side) % (label + 2) == 0)[:, None, None] // 2).astype(np.uint8)
        (folder / f"class{label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"class{label}" / f"{i:02}.png")
        pixels.append(((image.transpose(2, 0, 1).astype(np.float32) / np.float32(255) - np.float32(0.5)) / np.float32(0.5)).astype(np.float64))
        classes.append(label)
    return torch.tensor(np.array(pixels)), torch.tensor(classes)


def said(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{args[0]}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


@torch.no_grad()
def evaluated(model, pixels, classes):
    model.eval()
    loss = torch.nn.functional.cross_entropy(model(pixels), classes).item()
    model.train()
    return loss


def train(model, pixels, classes, steps):
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pixels), classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def worst(got, want):
    return max(abs(a - b) / abs(b) for a, b in zip(got, want))


def started(folder, name, seed):
    """The model in fp64, the images and the classes, and all of it in the folder."""
    make, side, config = MODELS[name]
    torch.manual_seed(seed)
    model = make(num_classes=CLASSES).double().train()
    pixels, classes = write_images(folder / "images", side)
    (folder / "start").mkdir()
    names = {str(k): f"class{k}" for k in range(CLASSES)}
    shape = {"num_labels": CLASSES, "num_channels": 3, "image_size": side, "id2label": names}
    (folder / "start/config.json").write_text(json.dumps(config | shape))
    save_file(model.state_dict(), folder / "start/model.safetensors")
    return model, pixels, classes


def train_ours(program, folder, precision, steps):
    """The losses and weights."""
    run = folder / "run"
    said(program, "train", "--model", folder / "start", "--data", folder / "images", "--precision", precision, "--device", "cpu", "--optimizer", "sgd",
         "--momentum", 0.9, "--weight-decay", 1e-4, "--decay-all", "--learning-rate", RATE, "--lr-schedule", "constant", "--warmup-steps", 0,
         "--steps", steps, "--micro-batch-size", IMAGES, "--gradient-clipping", 0, "--threads", 2, "--out", run)
    said(program, "export", run, "--out", folder / "exported")
    losses = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    return losses, load_file(folder / "exported/model.safetensors")


def distances(weights, want):
    """The largest difference of each tensor, relative to its largest element."""
    return {key: ((weights[key].double() - value).abs().max() / value.abs().max().clamp(min=1e-3)).item()
            for key, value in want.items() if not key.endswith("num_batches_tracked")}


def check_fp64(program, name, folder):
    model, pixels, classes = started(folder, name, 0)
    evaluate = lambda at: json.loads(said(program, "evaluate", "--model", at, "--data", folder / "images", *WHERE, "--json"))["loss"]
    before = worst([evaluate(folder / "start")], [evaluated(model, pixels, classes)])
    losses, ours = train_ours(program, folder, "fp64", STEPS)
    learnt = worst(losses, train(model, pixels, classes, STEPS))
    far = distances(ours, model.state_dict())
    statistics = max([value for key, value in far.items() if "running" in key], default=0)
    MODELS[name][0](num_classes=CLASSES).double().load_state_dict(ours, strict=True)
    after = worst([evaluate(folder / "run")], [evaluated(model, pixels, classes)])
    holds = max(before, learnt, after) < CLOSE and max(far.values()) < 1e-7
    print(f"{name:9} evaluation {before:.1e}, losses of {STEPS} steps {learnt:.1e}, weights {max(far.values()):.1e}, running statistics {statistics:.1e}, "
          f"evaluation after {after:.1e}: {'ok' if holds else 'NOT THE SAME'}", flush=True)
    return holds


def check_fp32(program, name):
    mean = lambda far: sum(far.values()) / len(far)
    ours, theirs = [], []
    for seed in range(SEEDS):
        with tempfile.TemporaryDirectory() as at:
            folder = pathlib.Path(at)
            model, pixels, classes = started(folder, name, seed)
            single = MODELS[name][0](num_classes=CLASSES).train()
            single.load_state_dict(model.state_dict())
            train(model, pixels, classes, 1)
            train(single, pixels.float(), classes, 1)
            ours.append(mean(distances(train_ours(program, folder, "fp32", 1)[1], model.state_dict())))
            theirs.append(mean(distances(single.state_dict(), model.state_dict())))
    holds = min(ours) < 2 * min(theirs)
    print(f"{name:9} fp32 after a step, seeds 0 to {SEEDS - 1}: {' '.join(f'{x:.1e}' for x in ours)}, torch's {' '.join(f'{x:.1e}' for x in theirs)}: "
          f"{'ok' if holds else 'NOT THE SAME'}", flush=True)
    return holds


def main():
    program, *names = sys.argv[1:]
    holds = True
    for name in names or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            holds &= check_fp64(program, name, pathlib.Path(folder))
        holds &= check_fp32(program, name)
    sys.exit(not holds)


if __name__ == "__main__":
    main()
