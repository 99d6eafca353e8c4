"""Runs the blocks of a model as the engine runs them, and compares loss and gradients with PyTorch's."""

import torch

from spillway.torch import _cut


def slots(model):
    """The places of each parameter, by its first name."""
    places = {}
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((module._parameters, key))
    return {name: places[id(parameter)] for name, parameter in model.named_parameters()}


def as_the_engine_runs(cut, weights, batch):
    """Returns loss and gradients as the engine computes them: each block has only the weights that it names, gets copies of what travels,
    and is run again for its backward, from the same random state."""
    places = slots(cut.model)
    before = {name: [holder[key] for holder, key in where] for name, where in places.items()}

    def run(piece, carried):
        for name, where in places.items():
            weight = weights[name] if name in piece.parameters else torch.empty(0, dtype=weights[name].dtype)
            for holder, key in where:
                holder[key] = weight
        return piece.run(carried, batch)

    travelling, states = [()], []
    with torch.no_grad():
        for piece in cut.pieces:
            states.append(torch.get_rng_state())
            travelling.append(tuple(tensor.contiguous().clone() for tensor in run(piece, travelling[-1])))
    (loss,) = travelling.pop()
    gradients, upstream = {}, (torch.ones_like(loss),)
    for piece, carried, state in zip(reversed(cut.pieces), reversed(travelling), reversed(states)):
        torch.set_rng_state(state)
        carried = tuple(tensor.requires_grad_(tensor.is_floating_point()) for tensor in carried)
        results = [(result, gradient) for result, gradient in zip(run(piece, carried), upstream)
                   if gradient is not None and result.requires_grad]
        names = [name for name in piece.parameters if weights[name].requires_grad]
        inputs = [tensor for tensor in carried if tensor.requires_grad] + [weights[name] for name in names]
        found = [None] * len(inputs)
        if results:
            outputs, of_outputs = zip(*results)
            found = torch.autograd.grad(outputs, inputs, of_outputs, allow_unused=True)
        for name, gradient in zip(names, found[len(inputs) - len(names):]):
            if gradient is not None:
                gradients[name] = gradients[name] + gradient if name in gradients else gradient
        of_carried = iter(found)
        upstream = tuple(next(of_carried) if tensor.requires_grad else None for tensor in carried)
    for name, where in places.items():
        for (holder, key), parameter in zip(where, before[name]):
            holder[key] = parameter
    return loss, gradients


def plainly(model, batch, loss=None):
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    value = _cut._plain(model, batch, loss)
    gradients = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    return value.detach(), {name: gradient for name, gradient in zip(parameters, gradients) if gradient is not None}


def expect_as_plain(cut, model, batch):
    weights = {name: parameter.detach().requires_grad_(parameter.requires_grad) for name, parameter in model.named_parameters()}
    torch.manual_seed(3)
    right, right_gradients = plainly(model, batch, cut.loss)
    torch.manual_seed(3)
    loss, gradients = as_the_engine_runs(cut, weights, batch)
    assert loss.item() == right.item()
    for name, gradient in right_gradients.items():
        size = gradient.norm().item()
        if size > 0:
            assert (gradients[name] - gradient).norm().item() <= 1e-12 * size, name
    for name in gradients.keys() - right_gradients.keys():
        assert gradients[name].norm().item() == 0, name


def expect_layers(cut, count):
    assert len(cut.pieces) == count + 2, [piece.name for piece in cut.pieces]
    assert not cut.notes
