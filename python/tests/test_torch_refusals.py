"""Modules of PyTorch that do what a block must not do: each works as in PyTorch, or ends the run with an error that names it."""

import hashlib
import os

import pytest

torch = pytest.importorskip("torch")

import spillway  # noqa: E402
from spillway.torch import _faults  # noqa: E402
from test_torch import PLACEMENTS, SETTINGS, by_pytorch, cross_entropy, micro_batches, points  # noqa: E402

DONE = [0]  # the last step that the run has ended


def trained(folder, model, data, loss, **more):
    settings = {**SETTINGS, **more}
    if "nvme" in settings.values():
        settings["nvme"] = folder / "scratch"
    DONE[0] = 0
    result = spillway.Trainer(model=model, data=data, loss=loss, out=folder / "run", **settings).train(
        on_step=lambda event: DONE.__setitem__(0, event.step), progress=False, log=lambda line: None)
    return result, hashlib.sha256((result.checkpoint / "model.safetensors").read_bytes()).hexdigest()


def linear(rows=8, columns=8):
    return torch.nn.Linear(rows, columns, dtype=torch.float64)


class Middle(torch.nn.Module):
    """Runs act(self, x)."""

    def __init__(self, act):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8, dtype=torch.float64) / 3)
        self.act = act

    def forward(self, x):
        return self.act(self, x)


def model(act):
    torch.manual_seed(0)
    return torch.nn.Sequential(linear(), Middle(act), linear(8, 3))


def product(module, x):
    return x @ module.weight


def of(middle):
    torch.manual_seed(0)
    return torch.nn.Sequential(linear(), middle(), linear(8, 3))


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(8, 8, batch_first=True, dtype=torch.float64)

    def forward(self, x):
        return self.rnn(x[:, None])[0][:, 0]


class LooksUp(torch.nn.Module):
    def __init__(self, **more):
        super().__init__()
        self.table = torch.nn.Embedding(11, 8, dtype=torch.float64, **more)

    def forward(self, x):
        return self.table((x * 3).long().abs() % 11).sum(1)


def unused():
    made = model(product)
    made[1].spare = torch.nn.Parameter(torch.ones(8, dtype=torch.float64))
    return made


def hooked():
    made = model(product)
    made[1].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    made[1].register_forward_hook(lambda module, args, out: out + 1)
    made[1].register_full_backward_hook(lambda module, into, out: (into[0] / 2,))
    return made


def checkpointed(module, x):
    return torch.utils.checkpoint.checkpoint(lambda y: torch.tanh(y @ module.weight), x, use_reentrant=False)


def changes_input(module, x):
    with torch.no_grad():
        x.mul_(1.5)
    return x @ module.weight


def counts(module, x):
    if module.training:
        module.seen = module.seen + 1
        module.mean = 0.9 * module.mean + 0.1 * x.detach().mean(0)
    return x @ module.weight


def with_buffers():
    made = model(counts)
    made[1].register_buffer("seen", torch.zeros((), dtype=torch.int64))
    made[1].register_buffer("mean", torch.zeros(8, dtype=torch.float64))
    return made


def forks(module, x):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return x @ module.weight


def keeps_a_copy(module, x):
    module.last = x.detach().clone()
    return x @ module.weight


def refers_to_itself(module, x):
    box = [x]
    box.append(box)
    return x @ module.weight


WORKS = {
    "a parameter without a gradient": unused, "hooks that return": hooked, "control flow": lambda: model(
        lambda module, x: x @ module.weight if x.sum() > 0 else torch.tanh(x @ module.weight)),
    "input changed in place": lambda: model(changes_input), "relu in place": lambda: of(lambda: torch.nn.ReLU(inplace=True)),
    "compiled layer": lambda: of(lambda: torch.compile(torch.nn.Sequential(linear(), torch.nn.Tanh()), backend="aot_eager")),
    "compiled model": lambda: torch.compile(model(product), backend="eager"), "LSTM": lambda: of(Recurrent),
    "weight norm": lambda: of(lambda: torch.nn.utils.parametrizations.weight_norm(linear())), "copy kept": lambda: model(keeps_a_copy),
    "torch.utils.checkpoint": lambda: model(checkpointed), "buffers replaced": with_buffers, "fork": lambda: model(forks),
    "garbage in cycles": lambda: model(refers_to_itself), "input returned": lambda: of(torch.nn.Identity),
}


@pytest.mark.parametrize("name", WORKS)
def test_these_train_as_in_pytorch(name, tmp_path):
    data, bits = points(), set()
    expected = by_pytorch(WORKS[name](), micro_batches(data), lambda m, batch: cross_entropy(m(batch["x"].clone()), batch), steps=3)
    for placement in ("device", "recomputed", "nvme, graph kept"):
        folder = tmp_path / placement
        folder.mkdir()
        result, one = trained(folder, WORKS[name](), data, cross_entropy, steps=3, **PLACEMENTS[placement])
        assert result.losses == pytest.approx(expected, rel=1e-12), placement
        bits.add(one)
    assert len(bits) == 1 or name == "buffers replaced"


def test_sparse_gradients_become_dense(tmp_path):
    data = points()
    torch.manual_seed(0)
    dense = torch.nn.Sequential(LooksUp(), linear(8, 3))
    sparse = torch.nn.Sequential(LooksUp(sparse=True), linear(8, 3))
    sparse.load_state_dict(dense.state_dict())
    expected = by_pytorch(dense, micro_batches(data), lambda m, batch: cross_entropy(m(batch["x"]), batch), steps=3)
    assert trained(tmp_path, sparse, data, cross_entropy, steps=3)[0].losses == pytest.approx(expected, rel=1e-12)


def late(act):
    """Does `act` from the fourth step on."""
    return lambda: model(lambda module, x: act(module, x) if DONE[0] >= 3 else product(module, x))


def in_place(module, x):
    with torch.no_grad():
        module.weight.mul_(1.01)
    return x @ module.weight


def through_data(module, x):
    module.weight.data.mul_(1.01)
    return x @ module.weight


def through_numpy(module, x):
    module.weight.detach().numpy()[:] *= 1.01
    return x @ module.weight


def replaces(module, x):
    module.weight = torch.nn.Parameter(module.weight.detach() * 1.01)
    return x @ module.weight


def replaces_data(module, x):
    module.weight.data = module.weight.data * 1.01
    return x @ module.weight


def makes(module, x):
    if not hasattr(module, "late"):
        module.late = torch.nn.Parameter(torch.ones(8, dtype=torch.float64))
    return x @ module.weight * module.late


def makes_always(module, x):
    module.late = torch.nn.Parameter(torch.ones(8, dtype=torch.float64))
    return x @ module.weight * module.late


def makes_module(module, x):
    if not hasattr(module, "late"):
        module.late = linear()
    return module.late(x @ module.weight)


def keeps(what):
    def act(module, x):
        module.kept = {"x": x, "view": x[:1], "weight": module.weight.detach().t()}[what]
        return x @ module.weight

    return lambda: model(act)


class OnContext(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.weight.T, None


def first(act):
    return torch.nn.Sequential(Middle(act), linear(8, 3))


def function(module, x):
    return OnContext.apply(x, module.weight.detach()) @ module.weight


def reentrant(module, x):
    return torch.utils.checkpoint.checkpoint(lambda y: y @ module.weight, x, use_reentrant=True)


def in_list():
    made = model(lambda module, x: x @ module.weights[0])
    made[1].weights = [made[1].weight]
    return made


def with_hook(kept):
    made = model(product)
    made[1].register_forward_hook(lambda module, args, out: kept.append(args[0]))
    return made


def with_backward_hook(kept):
    made = model(product)
    made[1].register_full_backward_hook(lambda module, into, out: kept.append(out[0]))
    return made


def on_parameter():
    made = model(product)
    made[1].weight.register_hook(lambda gradient: gradient * 0)
    return made


def on_meta():
    made = model(product)
    made[2].to("meta")
    return made


def with_parameter(value):
    made = model(product)
    made[1].other = torch.nn.Parameter(value, requires_grad=False)
    return lambda: made


REFUSED = {
    "on the meta device": (on_meta, "expected weights, got none for 2.weight, which is on the meta device"),
    "lazy": (lambda: of(lambda: torch.nn.LazyLinear(8, dtype=torch.float64)), "known shapes, got 1.weight"),
    "complex": (with_parameter(torch.ones(8, dtype=torch.complex64)), "floating-point numbers, got torch.complex64 in 1.other"),
    "integers": (with_parameter(torch.ones(8, dtype=torch.int8)), "floating-point numbers, got torch.int8 in 1.other"),
    "eight bits": (with_parameter(torch.ones(8).to(torch.float8_e4m3fn)), "floating-point numbers, got torch.float8_e4m3fn in 1.other"),
    "sparse": (with_parameter(torch.eye(8).to_sparse()), "dense parameters, got torch.sparse_coo in 1.other"),
    "in place": (lambda: model(in_place), "`1`, which changes 1.weight in place"),
    "in place, late": (late(in_place), "`1`, which changes 1.weight in place"),
    "through .data": (lambda: model(through_data), "`1`, which changes one in place, through .data"),
    "through .data, late": (late(through_data), "`1`, which changes 1.weight in place"),
    "through numpy, late": (late(through_numpy), "`1`, which changes 1.weight in place"),
    "rows scaled": (lambda: torch.nn.Sequential(LooksUp(max_norm=0.5), linear(8, 3)), "changes 0.table.weight in place"),
    "replaced": (lambda: model(replaces), "`1`, which replaces 1.weight"),
    "replaced late": (late(replaces), "`1`, which replaces 1.weight"),
    "data replaced": (late(replaces_data), "`1`, which replaces 1.weight"),
    "made in forward": (lambda: model(makes), "`1`, which makes 1.late: make it in __init__"),
    "made always": (lambda: model(makes_always), "`1`, which makes 1.late"), "made late": (late(makes), "`1`, which makes 1.late"),
    "module made": (lambda: model(makes_module), "`1`, which makes 1.late.weight"),
    "in a list": (in_list, "parameters of the block that reads them, got 1.weight"),
    "input in place, late": (late(changes_input), "`1`, which changes the input in place"),
    "batch in place": (lambda: first(lambda module, x: x.mul_(2) @ module.weight), "`0`, which changes x in place"),
    "batch in place, late": (lambda: first(lambda module, x: (x.mul_(2) if DONE[0] >= 3 else x) @ module.weight),
                             "`0`, which changes x in place"),
    "input kept": (keeps("x"), "nothing keeps the input of `1`"), "view kept": (keeps("view"), "nothing keeps the input of `1`"),
    "weight kept": (keeps("weight"), "nothing keeps 1.weight of `1`"),
    "kept by a hook": (lambda: with_hook([]), "nothing keeps the input of `1`"),
    "kept by a backward hook": (lambda: with_backward_hook([]), "nothing keeps the gradient of the output of `1`"),
    "kept by a function": (lambda: model(function), "nothing keeps 1.weight of `1`"),
    "hook on a parameter": (on_parameter, "expected parameters without hooks, got 1.weight"),
    "TorchScript": (lambda: of(lambda: torch.jit.script(linear())), "got 1, a RecursiveScriptModule"),
    "another shape": (late(lambda module, x: (x @ module.weight)[:, :4]), "outputs of the first micro-batch from `1`"),
    "another type": (late(lambda module, x: (x @ module.weight).float()), "outputs of the first micro-batch from `1`"),
    "no tensor": (lambda: model(lambda module, x: {"y": x}), "a tensor or a tuple of tensors from Middle, got dict"),
    "reentrant checkpoint": (lambda: model(reentrant), "use_reentrant=False"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_these_are_refused_by_name(name, tmp_path):
    make, says = REFUSED[name]
    for placement in ("device", "recomputed") if "kept" in name else ("device",):
        with pytest.raises((spillway.UsageError, TypeError, RuntimeError), match=says):
            trained(tmp_path, make(), points(), cross_entropy, **PLACEMENTS[placement])


def test_a_loss_that_is_not_a_number_ends_the_run(tmp_path):
    with pytest.raises(spillway.NumbersError, match="not finite"):
        trained(tmp_path, model(lambda module, x: x @ module.weight * float("nan")), points(), cross_entropy)


def test_messages_of_the_dispatcher_are_cut(tmp_path):
    def act(module, x):
        return torch.ops.aten.quantized_batch_norm(x, None, None, x, x, 1.0, 1.0, 1) @ module.weight

    with pytest.raises(NotImplementedError) as raised:
        trained(tmp_path, model(act), points(), cross_entropy)
    assert str(raised.value) == "Could not run 'aten::quantized_batch_norm' with arguments from the 'CPU' backend …"
    assert raised.value.__notes__ == ["first forward of block `1`, module 1 (Middle)"]


def test_absent_weights_say_their_name():
    absent = _faults.absent("head.weight", torch.nn.Parameter(torch.ones(2, 3)))
    assert absent.shape == (2, 3) and absent.requires_grad and type(torch.empty_like(absent)) is torch.Tensor
    for act in (lambda: torch.ones(4, 2) @ absent, lambda: absent + 1, lambda: torch.nn.functional.linear(torch.ones(1, 3), absent)):
        with pytest.raises(spillway.UsageError, match="got head.weight"):
            act()


def test_lora_names_peft(tmp_path):
    with pytest.raises(spillway.UsageError, match="lora: expected none for a model of PyTorch, got 8: give the model that peft.get_peft_model"):
        trained(tmp_path, model(product), points(), cross_entropy, lora=8)
