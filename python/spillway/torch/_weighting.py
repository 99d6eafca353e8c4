"""Finds how a model's own loss weights the samples of a micro-batch.

The loss is a mean: over the labels that count, with or without the first of each sequence, or over the samples. A step must take the
mean over all its micro-batches, and so has to weight theirs in the same way. The model itself is asked: on samples with different
numbers of labels the loss of two together tells the weights of each."""

from __future__ import annotations

import torch

from ._comparison import as_before, virtual_weights
from ._cut_run import call_with_batch, loss_of

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Callable

_COUNTS: dict[str, Callable[[torch.Tensor], int]] = {
    "next labels": lambda labels: int((labels[..., 1:] >= 0).sum()), "labels": lambda labels: int((labels >= 0).sum()), "one": lambda labels: 1}
_LEAST = 8  # positions, so that the ways differ by enough


def weight_of(model: torch.nn.Module, batch: dict[str, torch.Tensor], expected: str) -> str:
    """Returns one of "next labels", "labels" and "one", from a batch of two samples; `expected` if the model does not tell."""
    labels = batch.get("labels")
    if labels is None or labels.dtype.is_floating_point or labels.dim() < 2:
        return "one"
    if labels.shape[-1] < _LEAST or len(labels) != 2:
        return expected
    pair = torch.where(labels >= 0, labels, torch.zeros_like(labels))
    pair[0, ..., 3:] = -100
    pair[1, ..., 0] = pair[1, ..., 6:] = -100
    both = {name: t.float() if t.dtype.is_floating_point else t for name, t in batch.items()}
    with torch.no_grad(), virtual_weights(model, torch.float32, scale=0.3), as_before(model), torch.random.fork_rng(devices=[]):
        model.eval()
        first, second, together = (float(loss_of(call_with_batch(model, each), each, None))
                                   for each in (*({**{k: t[i : i + 1] for k, t in both.items()}, "labels": pair[i : i + 1]} for i in (0, 1)),
                                                {**both, "labels": pair}))
    errors = {}
    for name, count in _COUNTS.items():
        of_first, of_second = count(pair[0]), count(pair[1])
        errors[name] = abs((of_first * first + of_second * second) / (of_first + of_second) - together)
    best, next_best = sorted(errors, key=errors.__getitem__)[:2]
    return best if 4 * errors[best] < errors[next_best] else expected
