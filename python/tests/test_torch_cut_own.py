"""Cuts models of one's own into blocks and compares their loss and gradients with PyTorch's, in fp64."""

import copy

import pytest

torch = pytest.importorskip("torch")
checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint

from spillway.torch import _cut  # noqa: E402  (after the check for PyTorch)
from torch_cut_runs import expect_as_plain, expect_layers  # noqa: E402


def linear(inputs=8, outputs=8):
    return torch.nn.Linear(inputs, outputs)


def block():
    return torch.nn.Sequential(linear(), torch.nn.Tanh(), torch.nn.Dropout(0.2))


def own_batch():
    generator = torch.Generator().manual_seed(5)
    return {"x": torch.randn(6, 8, generator=generator, dtype=torch.float64), "labels": torch.randint(0, 4, (6,), generator=generator)}


def own_loss(output, batch):
    return torch.nn.functional.cross_entropy(output, batch["labels"])


class Own(torch.nn.Module):
    """Three layers, a stem and a head; `between` is what the model computes around a layer."""

    def __init__(self, layer=block, between=lambda self, layer, x, at: layer(x), **modules):
        super().__init__()
        self.stem, self.layers, self.head = linear(), torch.nn.ModuleList(layer() for _ in range(3)), linear(8, 4)
        self.between = between
        for name, module in modules.items():
            setattr(self, name, module)
        self.double()

    def forward(self, x):
        x = self.stem(x)
        for at, layer in enumerate(self.layers):
            x = self.between(self, layer, x, at)
        return self.head(x)


def expect_own(model, count=3, batch=None, **options):
    batch = own_batch() if batch is None else batch
    cut = _cut.cut(model, batch, loss=own_loss, **options)
    expect_layers(cut, count)
    expect_as_plain(cut, cut.model, batch)
    assert _cut.check(copy.deepcopy(cut), cut.model, batch) == 0
    return cut


def test_a_chain_of_modules():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = linear(), linear()

        def forward(self, labels, x):
            return self.a(x), self.b(x) * labels[:, None]

    class Joined(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.c = linear(8, 4)

        def forward(self, one, other):
            return self.c(one * other)

    shared = linear()
    for model in (torch.nn.Sequential(linear(), block(), linear(8, 4)).double(),
                  [shared.double(), torch.nn.ReLU(), shared, linear(8, 4).double()],
                  {"two": Two().double(), "joined": Joined().double()}):
        cut = _cut.cut(model, own_batch(), loss=own_loss)
        assert [piece.name for piece in cut.pieces] == (list(model) if isinstance(model, dict) else [str(at) for at in range(len(model))])
        expect_as_plain(cut, cut.model, own_batch())
    with pytest.raises(ValueError, match="loss: expected a function"):
        _cut.cut([linear()], own_batch())


def test_residual_connections_outside_of_layers():
    expect_own(Own(between=lambda self, layer, x, at: x + layer(x)))


def test_a_first_layer_that_reads_the_batch():
    """Nothing travels into it, so it is one block with what stands before it."""
    model = Own()
    model.stem = torch.nn.Identity()
    cut = _cut.cut(model, own_batch(), loss=own_loss)
    assert [piece.name for piece in cut.pieces] == ["embedding+layers.0", "layers.1", "layers.2", "head"]
    expect_as_plain(cut, cut.model, own_batch())


def test_what_the_model_changes_in_place_between_layers():
    class Changing(Own):
        def forward(self, x):
            x = first = self.stem(x)
            for layer in self.layers:
                x = layer(x)
                x += 1
            return self.head(x * first)

    expect_own(Changing(linear))

    def add(self, layer, x, at):
        x += layer(x)
        return x

    expect_own(Own(lambda: torch.nn.Sequential(torch.nn.Tanh(), linear()), add))


def test_modules_that_are_also_used_without_gradients():
    def between(self, layer, x, at):
        with torch.no_grad():
            shift = self.stem(x)
        return layer(x + shift)

    cut = expect_own(Own(between=between))
    assert ["stem.weight" in piece.parameters for piece in cut.pieces] == [True, True, True, False, False]


def test_layers_in_lists_in_a_list():
    def both(self, pair, x, at):
        x = x + pair[0](x)
        return x + pair[1](x)

    expect_own(Own(layer=lambda: torch.nn.ModuleList([block(), block()]), between=both), count=6)


def test_skip_connections_of_a_u_net():
    class UNet(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.middle, self.head = linear(), linear(), linear(8, 4)
            self.down = torch.nn.ModuleList(block() for _ in range(3))
            self.up = torch.nn.ModuleList(torch.nn.Sequential(linear(16, 8), block()) for _ in range(3))
            self.double()

        def forward(self, x):
            x, kept = self.stem(x), []
            for layer in self.down:
                x = layer(x)
                kept.append(x)
            x = self.middle(x)
            for layer in self.up:
                x = layer(torch.cat([x, kept.pop()], -1))
            return self.head(x)

    expect_own(UNet(), count=6)


def test_parameters_that_the_model_itself_uses_between_layers():
    scales = torch.nn.Parameter(torch.rand(3, 8, dtype=torch.float64))
    cut = expect_own(Own(between=lambda self, layer, x, at: layer(x) * self.scales[at], scales=scales))
    assert ["scales" in piece.parameters for piece in cut.pieces] == [False, True, True, False, True]


class WithArgument(torch.nn.Module):
    """A layer whose second argument is `use`d."""

    def __init__(self, use):
        super().__init__()
        self.linear, self.use = linear(), use

    def forward(self, x, given):
        return self.use(self.linear(x), given)


def test_arguments_that_depend_on_weights_travel():
    def layer():
        return WithArgument(lambda x, given: x * given)

    cut = expect_own(Own(layer, lambda self, layer, x, at: layer(x, self.scale), scale=torch.nn.Parameter(torch.rand(8))))
    assert ["scale" in piece.parameters for piece in cut.pieces] == [True, False, False, False, False]

    def by_spread(self, layer, x, at):
        if at == 0:
            self.spread = x.detach().std()
        return layer(x, self.spread)

    expect_own(Own(layer, by_spread))


def test_arguments_that_are_made_before_the_layers_travel_over_modules_between_them():
    class PerLayer(Own):
        def forward(self, x):
            inputs, x = self.inputs(x).view(-1, 3, 8), self.stem(x)
            for at, layer in enumerate(self.layers):
                x = self.between(layer(x, inputs[:, at]))
            return self.head(x)

    expect_own(PerLayer(lambda: WithArgument(lambda x, given: x * given), torch.nn.Linear(8, 8), inputs=linear(8, 24)))


def test_layers_that_change_their_arguments_in_place():
    class InPlace(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear()

        def forward(self, x, shift):
            y = self.linear(x * 2 + shift)
            x += 1
            shift += 1
            return x * y

    cut = expect_own(Own(InPlace, lambda self, layer, x, at: layer(x, torch.zeros(8, dtype=torch.float64))))
    batch, carried = own_batch(), ()
    with torch.no_grad():
        carried = cut.pieces[0].run(carried, batch)
        assert torch.equal(cut.pieces[1].run(carried, batch)[0], cut.pieces[1].run(carried, batch)[0])


def test_hooks_that_change_what_layers_get_and_return():
    model = Own()
    model.layers[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    model.layers[1].register_forward_hook(lambda module, args, result: result * 3)
    expect_own(model)


def test_functions_with_a_backward_of_their_own():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.variable = x
            return x ** 3

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 3 * ctx.variable ** 2

    expect_own(Own(between=lambda self, layer, x, at: Cube.apply(layer(Cube.apply(x)))))


def test_checkpointing_in_the_model():
    expect_own(Own(between=lambda self, layer, x, at: checkpoint(layer, x, use_reentrant=False)))


def test_frozen_and_unused_parameters():
    model = Own(never=linear())
    model.stem.requires_grad_(False)
    model.layers[1].requires_grad_(False)
    cut = _cut.cut(model, own_batch(), loss=own_loss)
    assert cut.notes == ["No block uses never.weight.", "No block uses never.bias."]
    assert cut.pieces[0].parameters == ["stem.weight", "stem.bias"]
    assert cut.pieces[2].parameters == ["layers.1.0.weight", "layers.1.0.bias"]
    expect_as_plain(cut, model, own_batch())


def test_cutting_changes_neither_buffers_nor_random_numbers():
    model = Own(lambda: torch.nn.Sequential(linear(), torch.nn.BatchNorm1d(8)))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    parameters = list(model.parameters())
    state = torch.get_rng_state()
    _cut.cut(model, own_batch(), loss=own_loss)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(one is other for one, other in zip(parameters, model.parameters()))
    expect_as_plain(_cut.cut(model, own_batch(), loss=own_loss), model, own_batch())


def counted(x, state):
    state["calls"] = state.get("calls", 0) + 1
    return x * state["calls"]


def test_layers_that_hand_on_what_is_no_tensor_are_one_block():
    class Counting(Own):
        def forward(self, x):
            state, x = {}, self.stem(x)
            for layer in self.layers:
                x = layer(x, state)
            return self.head(x)

    model = Counting(lambda: WithArgument(counted))
    cut = _cut.cut(model, own_batch(), loss=own_loss)
    assert [piece.name for piece in cut.pieces] == ["embedding", "layers.0-2", "head"]
    assert cut.notes == ["layers.0-2 is one block, because the layers hand on argument 1.calls and change it, and it is no tensor."]
    expect_as_plain(cut, model, own_batch())


def test_a_model_that_cannot_be_cut_is_one_block():
    class Choosing(Own):
        def forward(self, x):
            x = self.stem(x)
            for layer in self.layers[:3 if x.abs().sum() > 0 else 2]:
                x = layer(x)
            return self.head(x)

    model = Choosing()
    for cut in (_cut.cut(model, own_batch(), loss=own_loss), _cut.cut(linear(8, 4).double(), own_batch(), loss=own_loss)):
        assert len(cut.pieces) == 1 and len(cut.notes) == 1 and "is one block, because" in cut.notes[0]
        expect_as_plain(cut, cut.model, own_batch())


def test_another_number_of_layers_for_another_batch_is_said():
    class Choosing(Own):
        def forward(self, x):
            for layer in self.layers[:len(x) // 2]:
                x = layer(x)
            return self.head(x)

    cut = _cut.cut(Choosing(), own_batch(), loss=own_loss)
    shorter = {name: value[:4] for name, value in own_batch().items()}
    with pytest.raises(ValueError, match="expected its forward to call 3 layers for each batch, got 2"):
        cut.pieces[1].run(cut.pieces[0].run((), shorter), shorter)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="expected the name of a list of modules in Own, got 'blocks': it has layers"):
        _cut.cut(Own(), own_batch(), layers="blocks", loss=own_loss)
    with pytest.raises(ValueError, match=r"a tensor with one element from model\(\*\*batch\)\.loss, got a tensor of shape \(6, 4\)"):
        _cut.cut(Own(), own_batch())


def test_buffers_on_the_meta_device():
    class Shifted(torch.nn.Module):
        def __init__(self, persistent):
            super().__init__()
            self.linear, self.norm = linear(), torch.nn.BatchNorm1d(8)
            self.register_buffer("shift", torch.ones(8), persistent)

        def forward(self, x):
            return self.norm(self.linear(x) + self.shift)

    with torch.device("meta"):
        model, other = Own(lambda: Shifted(True)), Own(lambda: Shifted(False))
    notes = _cut.cut(model, own_batch(), loss=own_loss).notes
    assert len(notes) == 3
    assert notes[1] == "Buffer layers.1.shift was on the meta device and is 0 until it is loaded: the model does not set it."
    assert model.layers[0].norm.running_var.tolist() == [1] * 8
    with pytest.raises(ValueError, match="expected a value for the buffer layers.0.shift"):
        _cut.cut(other, own_batch(), loss=own_loss)


def test_compiled_modules_and_their_own_checkpointing_are_refused():
    compiled = Own()
    compiled.layers[1] = torch.compile(compiled.layers[1])
    checkpointing = Own()
    checkpointing.layers[2].gradient_checkpointing = True
    for model, says in ((torch.compile(Own()), "made, the whole model: "), (compiled, r"made, Own\.layers\.1: give the module that"),
                        (checkpointing, r"enabled in Own\.layers\.2: call")):
        with pytest.raises(ValueError, match=says):
            _cut.cut(model, own_batch(), loss=own_loss)
