from __future__ import annotations
import inspect
from dataclasses import dataclass
import torch

@dataclass
class Piece:
    name: str
    parameters: list
    run: object

class Cut:
    def __init__(self, model, pieces, notes):
        self.model, self.pieces, self.notes = model, pieces, notes

class Run:
    def __init__(self, module, first, last, loss):
        self.module, self.first, self.last, self.loss = module, first, last, loss
    def __call__(self, carried, batch):
        if self.first:
            names = [n for n in inspect.signature(self.module.forward).parameters if n in batch]
            out = self.module(**{n: batch[n] for n in names}) if names else self.module(next(iter(batch.values())))
        else:
            out = self.module(*carried)
        if self.last:
            out = self.loss(out, batch)
        return out if isinstance(out, tuple) else (out,)

def cut(model, example, *, layers=None, loss=None):
    if not isinstance(model, torch.nn.Module):
        model = torch.nn.Sequential(*model)
    names = {id(p): n for n, p in model.named_parameters()}
    children = list(model.named_children())
    pieces = [Piece(n, list(dict.fromkeys(names[id(p)] for p in m.parameters())), Run(m, i == 0, i + 1 == len(children), loss)) for i, (n, m) in enumerate(children)]
    return Cut(model, pieces, [])
