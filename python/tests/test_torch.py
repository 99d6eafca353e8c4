"""Models of PyTorch in spillway.Trainer: the same steps as PyTorch's own loop, and the same bits wherever the bytes lie."""

import hashlib
import os
import pathlib
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import spillway  # noqa: E402

NVME = dict(place_parameters="nvme", place_gradients="nvme", place_optimizer="nvme")
RANKS = dict(ranks=2, communicator="local")
PLACEMENTS = {
    "device": {}, "recomputed": dict(recompute="block"), "nvme": NVME, "nvme, graph kept": dict(recompute="none", **NVME),
    "activations too": dict(place_activations="nvme", **NVME), "zero 3": dict(zero_stage=3, **RANKS), "zero 3 on nvme": dict(zero_stage=3, **NVME, **RANKS),
    "two stages": dict(pipeline_stages=2, **RANKS), "split backward": dict(pipeline_stages=2, pipeline_schedule="zb-h1", **RANKS),
}
SETTINGS = dict(steps=6, micro_batch_size=4, global_batch_size=8, learning_rate=0.01, weight_decay=0.1, data_order="sequential", device="cpu",
                lr_schedule="constant", warmup_steps=0, gradient_clipping=1.0, betas=(0.9, 0.95))


def trained(folder, model, data, loss=None, steps=None, **more):
    settings = {**SETTINGS, **more, **({"steps": steps} if steps else {})}
    settings = {key: value for key, value in settings.items() if value is not None}
    if "nvme" in settings.values():
        settings["nvme"] = folder / "scratch"
    result = spillway.Trainer(model=model, data=data, loss=loss, out=folder / "run", **settings).train(progress=False, log=lambda line: None)
    weights = (result.checkpoint / "model.safetensors").read_bytes()
    return result, hashlib.sha256(weights).hexdigest()


def loaded(result):
    from safetensors.torch import load_file

    return load_file(result.checkpoint / "model.safetensors")


def by_pytorch(model, batches, loss, steps=6):
    """Losses of AdamW steps on micro-batches of equal weight, with PyTorch alone. `batches` are the micro-batches of each step."""
    matrices, others = [p for p in model.parameters() if p.dim() >= 2], [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        parts = [loss(model, batch) / len(batches[step]) for batch in batches[step]]
        sum(parts).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(sum(parts).item())
    return losses


def perceptron(dropout=0.0, norm=False):
    torch.manual_seed(0)
    middle = [torch.nn.Linear(16, 16), torch.nn.Dropout(dropout)] + ([torch.nn.BatchNorm1d(16)] if norm else [])
    return torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU()), torch.nn.Sequential(*middle), torch.nn.Linear(16, 3)).double()


def points():
    torch.manual_seed(1)
    return {"x": torch.randn(24, 8, dtype=torch.float64), "y": torch.randint(0, 3, (24,))}


def cross_entropy(output, batch):
    return torch.nn.functional.cross_entropy(output, batch["y"])


def micro_batches(data, steps=6, size=4, count=2):
    """The rows that a run reads in sequence."""
    rows = len(next(iter(data.values())))
    return [[{key: value[[(s * size * count + k * size + i) % rows for i in range(size)]] for key, value in data.items()} for k in range(count)]
            for s in range(steps)]


def test_steps_are_pytorchs_on_every_placement(tmp_path):
    data, reference = points(), perceptron()
    expected = by_pytorch(reference, micro_batches(data), lambda model, batch: cross_entropy(model(batch["x"]), batch))
    bits = {}
    for name, placement in PLACEMENTS.items():
        folder = tmp_path / name
        folder.mkdir()
        result, bits[name] = trained(folder, perceptron(), data, cross_entropy, **placement)
        assert result.losses == pytest.approx(expected, rel=1e-12), name
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(loaded(result)[name], parameter.detach(), rtol=0, atol=1e-12)
    assert len(set(bits.values())) == 1, bits


def test_dropout_is_drawn_again_the_same(tmp_path):
    bits = {}
    for name, placement in PLACEMENTS.items():
        folder = tmp_path / name
        folder.mkdir()
        result, bits[name] = trained(folder, perceptron(dropout=0.5), points(), cross_entropy, **placement)
        losses = result.losses
    assert len(set(bits.values())) == 1, bits
    assert losses != trained(tmp_path, perceptron(dropout=0.0), points(), cross_entropy)[0].losses


def test_a_run_leaves_pytorchs_random_numbers_as_they_were(tmp_path):
    model, data = perceptron(dropout=0.5), points()
    before = torch.get_rng_state()
    trained(tmp_path, model, data, cross_entropy)
    assert torch.equal(torch.get_rng_state(), before)


def test_running_statistics_are_pytorchs_and_are_saved(tmp_path):
    data, reference = points(), perceptron(norm=True)
    batches = micro_batches(data, size=8, count=1)
    expected = by_pytorch(reference, batches, lambda model, batch: cross_entropy(model(batch["x"]), batch))
    bits = {}
    for name in ("device", "recomputed", "nvme", "zero 3"):
        folder = tmp_path / name
        folder.mkdir()
        size = dict(micro_batch_size=8) if "ranks" not in PLACEMENTS[name] else dict(micro_batch_size=8, global_batch_size=16)
        result, bits[name] = trained(folder, perceptron(norm=True), data, cross_entropy, **size, **PLACEMENTS[name])
        if "ranks" not in PLACEMENTS[name]:
            assert result.losses == pytest.approx(expected, rel=1e-9), name
            for buffer in ("running_mean", "running_var"):
                torch.testing.assert_close(loaded(result)[f"1.2.{buffer}"], reference.get_buffer(f"1.2.{buffer}"), rtol=1e-9, atol=1e-9)
    assert bits["device"] == bits["recomputed"] == bits["nvme"]


SCRIPT = """
import sys, torch, spillway
sys.path.insert(0, sys.argv[3])
import test_torch as t
settings = {**t.SETTINGS, **t.NVME}
def on_step(event):
    if event.step == int(sys.argv[2]): import os, signal; os.kill(os.getpid(), signal.SIGKILL)
spillway.Trainer(model=t.perceptron(dropout=0.5), data=t.points(), loss=t.cross_entropy, out=sys.argv[1] + "/run", nvme=sys.argv[1] + "/scratch",
                 **settings).train(on_step=on_step, progress=False, log=lambda line: None)
"""


def test_a_killed_run_goes_on_with_the_same_bits(tmp_path):
    whole, bits = trained(tmp_path, perceptron(dropout=0.5), points(), cross_entropy, **NVME)
    folder = tmp_path / "killed"
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", SCRIPT, folder, "3", pathlib.Path(__file__).parent], check=False)
    assert done.returncode == -signal.SIGKILL
    result, again = trained(folder, perceptron(dropout=0.5), points(), cross_entropy, **NVME)
    assert result.losses == whole.losses and again == bits


def test_the_last_step_of_an_epoch_has_only_the_samples_that_are_left(tmp_path):
    data = {key: value[:11] for key, value in points().items()}  # a step of 8 rows and one of 3: a micro-batch with one empty row and an empty one
    reference, expected = perceptron(), []
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(4):
        batch = {key: value[:8] if step % 2 == 0 else value[8:] for key, value in data.items()}
        optimizer.zero_grad()
        loss = cross_entropy(reference(batch["x"]), batch)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    bits = set()
    for name, placement in PLACEMENTS.items():
        folder = tmp_path / name
        folder.mkdir()
        settings = dict(optimizer="sgd", learning_rate=0.1, weight_decay=0, gradient_clipping=0, betas=None)
        result, one = trained(folder, perceptron(), data, cross_entropy, steps=4, **settings, **placement)
        assert result.losses == pytest.approx(expected, rel=1e-12), name
        bits.add(one)
    assert len(bits) == 1


def test_a_tied_weight_is_one(tmp_path):
    class Tied(torch.nn.Module):
        def __init__(self, weight):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            return torch.nn.functional.linear(x, self.weight)

    def model():
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(8, 8, dtype=torch.float64) * 0.3)
        return torch.nn.Sequential(Tied(weight), torch.nn.Tanh(), Tied(weight))

    data, reference = points(), model()
    expected = by_pytorch(reference, micro_batches(data), lambda m, batch: cross_entropy(m(batch["x"]), batch))
    for name in ("device", "nvme", "two stages"):
        folder = tmp_path / name
        folder.mkdir()
        assert trained(folder, model(), data, cross_entropy, **PLACEMENTS[name])[0].losses == pytest.approx(expected, rel=1e-12), name


class Skips(torch.nn.Module):
    """One step of a U-Net: what is carried along is a tuple, of which one tensor has no gradient."""

    def __init__(self, width, last=False):
        super().__init__()
        self.linear = torch.nn.Linear(width, 8)
        self.last = last

    def forward(self, x, *skips):
        if not skips:
            return torch.tanh(self.linear(x)), x, (x > 0).any(-1)
        first, mask = skips
        y = torch.tanh(self.linear(x)) + first * mask[:, None]
        return y if self.last else (y, first, mask)


def test_a_tuple_travels_between_blocks(tmp_path):
    def model():
        torch.manual_seed(0)
        return torch.nn.ModuleList([Skips(8), Skips(8), Skips(8, last=True)]).double()

    def whole(modules, batch):
        carried = (batch["x"],)
        for module in modules:
            carried = module(*carried) if isinstance(carried, tuple) else module(carried)
        return cross_entropy(carried, batch)

    data, reference = points(), model()
    expected = by_pytorch(reference, micro_batches(data), whole)
    bits = set()
    for name in PLACEMENTS:
        folder = tmp_path / name
        folder.mkdir()
        result, one = trained(folder, list(model()), data, cross_entropy, **PLACEMENTS[name])
        assert result.losses == pytest.approx(expected, rel=1e-12), name
        bits.add(one)
    assert len(bits) == 1


class Fails(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(8, dtype=torch.float64))
        self.kind, self.calls = kind, 0

    def forward(self, x):
        self.calls += 1
        if self.kind == "in place":
            with torch.no_grad():
                self.weight.mul_(1.5)
        if self.kind == "raises" and self.calls > 8:
            raise RuntimeError("a fault of the user's own")
        if self.kind == "shape" and self.calls > 8:
            return (x @ self.weight)[:, :4]
        if self.kind == "sparse":
            return (x @ self.weight).to_sparse()
        return x @ self.weight


@pytest.mark.parametrize("kind, says", [("raises", "block `0` raised RuntimeError: a fault of the user's own|a fault of the user's own"), ("in place", "changes 0.weight in place"),
                                        ("shape", "expected the outputs of the first micro-batch from `0`"), ("sparse", "expected dense tensors")])
def test_what_a_module_may_not_do_is_named(tmp_path, kind, says):
    model = torch.nn.Sequential(Fails(kind), torch.nn.Linear(8, 3).double())
    with pytest.raises(Exception, match=says):
        trained(tmp_path, model, points(), cross_entropy)


def test_models_that_cannot_be_trained_are_refused(tmp_path):
    def refused(model, says, **more):
        with pytest.raises((spillway.UsageError, TypeError), match=says):
            trained(tmp_path, model, points(), **{"loss": cross_entropy, **more})

    frozen = perceptron().requires_grad_(False)
    refused(frozen, "at least one parameter that is trained")
    refused(torch.nn.Sequential(torch.nn.LazyLinear(3)), "parameters of known shapes, got 0.weight")
    refused(torch.nn.Sequential(torch.nn.Linear(8, 3).to(torch.complex64)), "floating-point numbers, got torch.complex64 in 0")
    refused(perceptron(), "loss", loss=None)
    refused(perceptron(), "loss", loss="mean")


def test_frozen_parameters_stay(tmp_path):
    model = perceptron()
    model[0].requires_grad_(False)
    before = model[0][0].weight.detach().clone()
    weights = loaded(trained(tmp_path, model, points(), cross_entropy)[0])
    assert torch.equal(weights["0.0.weight"], before)
    assert not torch.equal(weights["1.0.weight"], perceptron()[1][0].weight.detach())


def test_a_checkpoint_that_cannot_be_completed_is_warned_of_and_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("spillway.torch.pretrained_files", lambda *_: {"manifest.json/config.json": b"{}"})  # a folder where a file is
    with pytest.warns(UserWarning, match="is complete for the run, but not a folder for from_pretrained"):
        result, _ = trained(tmp_path, perceptron(), points(), cross_entropy)
    assert result.finished and len(result.losses) == 6
