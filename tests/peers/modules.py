#!/usr/bin/env python3
"""spillway.nn, spillway.optim and their schedules beside PyTorch in fp64: each module has torch.nn's names, output and gradients with its
values; 20 steps of each optimizer over two groups have torch.optim's weights, and the states go both ways; schedules have the rates of
torch.optim.lr_scheduler, which are printed for python/tests/test_models_as_in_torch.py.

  PYTHONPATH=build/release/python python tests/peers/modules.py     # where torch is
"""

import math
import sys

import numpy as np
import spillway
import torch
from spillway import nn

MODULES = {
    "Linear": ("Linear(6, 5)", (3, 6)), "Linear without bias": ("Linear(6, 5, bias=False)", (2, 3, 6)),
    "LayerNorm": ("LayerNorm(6)", (4, 6)), "LayerNorm without bias": ("LayerNorm(6, bias=False, eps=1e-3)", (2, 3, 6)),
    "LayerNorm, plain": ("LayerNorm((6,), elementwise_affine=False)", (4, 6)), "RMSNorm": ("RMSNorm(6)", (4, 6)),
    "RMSNorm with eps": ("RMSNorm(6, eps=1e-5)", (4, 6)), "ReLU": ("ReLU()", (4, 6)), "GELU": ("GELU()", (4, 6)),
    "GELU, tanh": ("GELU(approximate='tanh')", (4, 6)), "SiLU": ("SiLU()", (4, 6)), "Tanh": ("Tanh()", (4, 6)), "Sigmoid": ("Sigmoid()", (4, 6)),
    "Mish": ("Mish()", (4, 6)), "Hardswish": ("Hardswish()", (4, 6)), "LeakyReLU": ("LeakyReLU(0.2)", (4, 6)), "ELU": ("ELU(0.7)", (4, 6)),
    "Softplus": ("Softplus(2, 3)", (4, 6)), "Softmax": ("Softmax(dim=1)", (4, 6, 2)), "Identity": ("Identity()", (4, 6)),
    "Flatten": ("Flatten()", (2, 3, 4)), "Dropout, eval": ("Dropout(0.3).eval()", (4, 6)),
    "Sequential": ("Sequential(Linear(6, 8), GELU(), LayerNorm(8), Linear(8, 2))", (4, 6)),
}
OPTIMIZERS = {
    "SGD": [{}, dict(momentum=0.9), dict(momentum=0.9, nesterov=True, weight_decay=0.1), dict(momentum=0.8, dampening=0.3)],
    "Adam": [{}, dict(betas=(0.8, 0.95), weight_decay=0.1), dict(amsgrad=True)], "AdamW": [{}, dict(amsgrad=True, eps=1e-3)],
    "Adagrad": [{}, dict(lr_decay=0.1, initial_accumulator_value=0.2)], "RMSprop": [{}, dict(momentum=0.9, centered=True)],
}
SCHEDULES = {
    "StepLR": ("StepLR", dict(step_size=3, gamma=0.5)), "MultiStepLR": ("MultiStepLR", dict(milestones=[2, 5], gamma=0.3)),
    "ExponentialLR": ("ExponentialLR", dict(gamma=0.9)), "LinearLR": ("LinearLR", dict(start_factor=0.25, total_iters=4)),
    "LinearLR, down": ("LinearLR", dict(start_factor=1.0, end_factor=0.0, total_iters=7)),
    "CosineAnnealingLR": ("CosineAnnealingLR", dict(T_max=8, eta_min=0.01)), "OneCycleLR": ("OneCycleLR", dict(max_lr=0.5, total_steps=9)),
    "OneCycleLR, linear": ("OneCycleLR", dict(max_lr=0.5, total_steps=9, anneal_strategy="linear", three_phase=True)),
    "LambdaLR": ("LambdaLR", dict(lr_lambda=lambda step: 1 / (1 + step))),
}


def check(name, ours, theirs, bound):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    far = float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30)) if ours.size else 0.0
    if ours.shape != theirs.shape or not far <= bound:
        sys.exit(f"{name}: expected at most {bound}, got {far} ({ours.shape}, {theirs.shape})")
    return far


def modules():
    worst = 0.0
    for name, (text, shape) in MODULES.items():
        ours, theirs = eval(text, vars(nn)), eval(text, vars(torch.nn)).double()
        ours.double()
        assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()], name
        assert list(ours.state_dict()) == list(theirs.state_dict()), name
        ours.load_state_dict(theirs.state_dict())
        x = np.random.default_rng(1).normal(size=shape) * 2
        a, b = spillway.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        y, z = ours(a), theirs(b)
        weights = np.random.default_rng(2).normal(size=tuple(z.shape))
        (y * spillway.tensor(weights)).sum().backward()
        (z * torch.tensor(weights)).sum().backward()
        worst = max(worst, check(f"{name}, output", y.numpy(), z.detach().numpy(), 1e-12), check(f"{name}, dx", a.grad.numpy(), b.grad.numpy(), 1e-12))
        for (n, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters()):
            worst = max(worst, check(f"{name}, {n}", p.grad.numpy(), q.grad.numpy(), 1e-12))
    table, peer = nn.Embedding(7, 3).double(), torch.nn.Embedding(7, 3).double()
    table.load_state_dict(peer.state_dict())
    ids = np.array([[1, 2, 2], [6, 0, 1]])
    (table(ids) ** 2).sum().backward()
    (peer(torch.tensor(ids)) ** 2).sum().backward()
    worst = max(worst, check("Embedding", table.weight.grad.numpy(), peer.weight.grad.numpy(), 1e-12))
    print(f"{len(MODULES) + 1} modules: outputs and gradients within {worst:.1e}")
    for text in ("Linear(256, 512)", "Embedding(300, 64)", "LayerNorm(9)", "RMSNorm(9)"):
        for (n, p), (_, q) in zip(eval(text, vars(nn)).named_parameters(), eval(text, vars(torch.nn)).named_parameters()):
            assert abs(float(p.numpy().std()) - float(q.detach().std(correction=0))) < 0.05 * max(float(q.detach().std()), 1e-3), (text, n)
            assert abs(float(np.abs(p.numpy()).max()) - float(q.detach().abs().max())) < 0.3 * float(q.detach().abs().max()) + 1e-6, (text, n)
    print("first values: the standard deviations and ranges of torch.nn")


def nets():
    ours, theirs = (kind.Sequential(kind.Linear(5, 7), kind.Tanh(), kind.Linear(7, 3)).double() for kind in (nn, torch.nn))
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def stepped(net, optimizer, x, of):
    optimizer.zero_grad()
    (net(of(x)) ** 2).mean().backward()
    optimizer.step()


def optimizers():
    count, worst = 0, 0.0
    for name, all_settings in OPTIMIZERS.items():
        for settings in all_settings:
            ours, theirs = nets()
            groups = [[{"params": net[0].parameters()}, {"params": net[2].parameters(), "lr": 0.03, "weight_decay": 0.05}] for net in (ours, theirs)]
            mine, peer = getattr(spillway.optim, name)(groups[0], lr=0.02, **settings), getattr(torch.optim, name)(groups[1], lr=0.02, **settings)
            random = np.random.default_rng(3)
            for step in range(20):
                if step == 10:  # the states change sides
                    state = mine.state_dict()
                    torch_state = {i: {k: torch.tensor(v.numpy()) for k, v in one.items()} for i, one in state["state"].items()}
                    before = peer.state_dict()
                    for i, one in before["state"].items():
                        for key, value in one.items():
                            if value is not None:
                                check(f"{name} {key}", torch_state[i][key].double().numpy(), torch.as_tensor(value).double().numpy(), 1e-9)
                    mine.load_state_dict(before)
                    peer.load_state_dict({"state": torch_state, "param_groups": before["param_groups"]})
                x = random.normal(size=(4, 5))
                stepped(ours, mine, x, spillway.tensor)
                stepped(theirs, peer, x, torch.tensor)
            for (n, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters()):
                worst = max(worst, check(f"{name} {settings} {n}", p.numpy(), q.detach().numpy(), 1e-9))
            assert set(peer.param_groups[0]) >= set(mine.param_groups[0]), name
            count += 1
    print(f"{count} optimizers, 20 steps in two groups: weights within {worst:.1e}, and the states go both ways")


def clipping():
    ours, theirs = nets()
    x = np.random.default_rng(4).normal(size=(4, 5)) * 9
    (ours(spillway.tensor(x)) ** 2).sum().backward()
    (theirs(torch.tensor(x)) ** 2).sum().backward()
    check("norm", nn.utils.clip_grad_norm_(ours.parameters(), 0.3).item(), torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.3).item(), 1e-12)
    for (n, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters()):
        check(f"clipped {n}", p.grad.numpy(), q.grad.numpy(), 1e-12)
    print("clip_grad_norm_: norm and gradients")


def schedules():
    for name, (kind, arguments) in SCHEDULES.items():
        ours, theirs = nets()
        mine, peer = spillway.optim.AdamW(ours, lr=0.1), torch.optim.AdamW(theirs.parameters(), lr=0.1)
        one, other = getattr(spillway.optim.lr_scheduler, kind)(mine, **arguments), getattr(torch.optim.lr_scheduler, kind)(peer, **arguments)
        rates = []
        for step in range(9):
            rates.append(other.get_last_lr()[0])
            if not math.isclose(one.get_last_lr()[0], rates[-1], rel_tol=1e-12, abs_tol=1e-15):
                sys.exit(f"{name}: expected {rates[-1]} at step {step}, got {one.get_last_lr()[0]}")
            if not math.isclose(mine.param_groups[0]["betas"][0], peer.param_groups[0]["betas"][0], rel_tol=1e-12):
                sys.exit(f"{name}: expected a beta of {peer.param_groups[0]['betas'][0]} at step {step}, got {mine.param_groups[0]['betas'][0]}")
            mine.step(), peer.step()
            if step < 8:
                one.step(), other.step()
        if kind != "LambdaLR":
            print(f'    "{name}": ("{kind}", dict({", ".join(f"{k}={v!r}" for k, v in arguments.items())}), {rates}),')
    print(f"{len(SCHEDULES)} schedules: the rates of 9 steps")


modules()
optimizers()
clipping()
schedules()
