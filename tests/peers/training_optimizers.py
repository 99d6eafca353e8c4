#!/usr/bin/env python3
"""Ten training steps of tests/data/gpt2-tiny under each update rule of torch.optim (and lion, written out), on transformers' model in
float64: losses, gradient norms before clipping, and the norm of each weight after the last step. Writes tests/data/optim/training.json.

  python tests/peers/training_optimizers.py [FILE]

Needs torch, transformers and safetensors; one thread. The batches, the clipping and which weights decay are those of the folder's
reference_f64.safetensors. tests/parallel/run/update_rule_test.cc has the settings once more.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
DECAY, CLIP = 0.1, 1.0


class Lion(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas=(0.9, 0.99)):
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(m * b1 + p.grad * (1 - b1)), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


CASES = {
    "sgd": (torch.optim.SGD, {"lr": 0.05}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.02, "momentum": 0.9, "dampening": 0.3}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.02, "momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"lr": 0.003}),
    "adam_amsgrad": (torch.optim.Adam, {"lr": 0.003, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.003}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.01}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.001}),
    "rmsprop_centered_momentum": (torch.optim.RMSprop, {"lr": 0.001, "momentum": 0.7, "centered": True}),
    "lion": (Lion, {"lr": 0.0003}),
    # The keys' biases, whose gradients are noise, must not be as large as others after a division by their root.
    "adafactor": (torch.optim.Adafactor, {"lr": 0.01, "eps": (1e-8, 1e-3)}),
    "adamw_groups": (torch.optim.AdamW, {"lr": 0.003}),
}
# Of parameters with this in their names, the first that is: their own rate, and decay of all of them.
OWN = {"adamw_groups": [("mlp", {"lr": 0.001}), ("bias", {"weight_decay": 0.5})]}


def train(name, make, options):
    model = AutoModelForCausalLM.from_pretrained(DATA / "gpt2-tiny", attn_implementation="eager").double().train()
    parameters = list(model.parameters())
    groups = []
    for whole_name, p in model.named_parameters():
        own = next((settings for part, settings in OWN.get(name, []) if part in whole_name), {})
        groups.append({"params": [p], "weight_decay": DECAY if p.dim() >= 2 else 0.0, **own})
    optimizer = make(groups, **options)
    losses, norms = [], []
    for ids in load_file(DATA / "gpt2-tiny/reference_f64.safetensors")["train/input_ids"]:
        optimizer.zero_grad()
        logits = model(input_ids=ids).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, CLIP).item())
        optimizer.step()
        losses.append(loss.item())
    final = {name: p.norm().item() for name, p in model.named_parameters() if not name.endswith("c_attn.bias")}
    return {"loss": losses, "norm": norms, "final": final}


def main():
    torch.set_num_threads(1)
    to = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "optim/training.json"
    result = {name: train(name, *case) for name, case in CASES.items()}
    to.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{to}: torch {torch.__version__}, {len(result)} cases, losses {result['sgd']['loss'][0]:.6f} to {result['sgd']['loss'][-1]:.6f}")


if __name__ == "__main__":
    main()
