#!/usr/bin/env python3
"""Trajectories of torch.optim with the options that the other files of tests/data/optim leave out: amsgrad, dampening, lr_decay, an initial
accumulator, centered and momentum of RMSprop. Writes tests/data/optim/rules.safetensors, of those files' layout with one tensor.

  python tests/peers/optimizers.py [FILE]

Needs torch, safetensors and numpy; one thread, fixed seed.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

STEPS, ELEMENTS = 20, 6
CASES = {
    "adam_amsgrad": (torch.optim.Adam, dict(lr=0.01, betas=(0.8, 0.9), eps=1e-8, weight_decay=0.05, amsgrad=True)),
    "adamw_amsgrad": (torch.optim.AdamW, dict(lr=0.01, betas=(0.8, 0.9), eps=1e-8, weight_decay=0.1, amsgrad=True)),
    "sgd_dampening": (torch.optim.SGD, dict(lr=0.05, momentum=0.9, dampening=0.4, weight_decay=0.02)),
    "adagrad_options": (
        torch.optim.Adagrad,
        dict(lr=0.1, lr_decay=0.05, weight_decay=0.03, initial_accumulator_value=0.2, eps=1e-10),
    ),
    "rmsprop_momentum": (torch.optim.RMSprop, dict(lr=0.01, alpha=0.9, eps=1e-8, weight_decay=0.02, momentum=0.7)),
    "rmsprop_centered": (torch.optim.RMSprop, dict(lr=0.01, alpha=0.9, eps=1e-8, centered=True)),
    "rmsprop_centered_momentum": (
        torch.optim.RMSprop,
        dict(lr=0.01, alpha=0.9, eps=1e-6, weight_decay=0.02, momentum=0.7, centered=True),
    ),
}


def problem():
    """Gradients of both signs, large at steps 4 and 5, so that amsgrad's maximum is soon above the average. Those of the last column are tiny;
    its weight is large, for a decay that alone drives a weight through zero turns rounding into any number."""
    generator = torch.Generator().manual_seed(5)
    gradients = torch.randn(STEPS, ELEMENTS, generator=generator)
    gradients[4:6] *= 5
    gradients[:, -1] *= 1e-6
    init = torch.randn(ELEMENTS, generator=generator)
    init[-1] = 3
    return init, gradients


def trajectory(optimizer, options, init, gradients, dtype):
    weight = torch.nn.Parameter(init.to(dtype).clone())
    update = optimizer([weight], foreach=False, **options)
    after = []
    for gradient in gradients:
        weight.grad = gradient.to(dtype).clone()
        update.step()
        after.append(weight.detach().clone())
    return torch.stack(after)


def main():
    torch.set_num_threads(1)
    default = pathlib.Path(__file__).resolve().parent.parent / "data/optim/rules.safetensors"
    init, gradients = problem()
    tensors = {"p0/init": init, "p0/grads": gradients}
    for name, (optimizer, options) in CASES.items():
        for dtype in (torch.float32, torch.float64):
            after = trajectory(optimizer, options, init, gradients, dtype)
            tensors[f"{name}/p0/f{dtype.itemsize * 8}/after"] = after
    info = {"torch": torch.__version__, "hyper": {name: options for name, (_, options) in CASES.items()}}
    save_file(tensors, sys.argv[1] if len(sys.argv) > 1 else default, metadata={"info": json.dumps(info)})


main()
