"""Models whose blocks are written in Python: the numbers of a loop by hand, the same bits wherever the bytes lie, kills, and refusals."""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import spillway as sp

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "own_block.py"
WIDTH = 8


def quiet(line):
    pass


def x_of(i):
    return [((7 * i + 3 * p) % 11) / 11 - 0.4 for p in range(3)]


SAMPLES = [{"x": x_of(i), "y": [x_of(i)[0] * x_of(i)[1] - x_of(i)[2]]} for i in range(10)]


class Layer(sp.Block):
    def __init__(self, inputs, std=0.5):
        self.weight = sp.Parameter((WIDTH, inputs), std=std)
        self.bias = sp.Parameter((WIDTH,), "zeros")

    def forward(self, x, batch):
        return sp.tanh(sp.linear(batch["x"] if x is None else x, self.weight, self.bias))


class Error(sp.Block):
    def __init__(self):
        self.weight = sp.Parameter((1, WIDTH), std=0.5)

    def forward(self, x, batch):
        return batch.loss((sp.linear(x, self.weight) - batch["y"]) ** 2)


def blocks():
    return [Layer(3), Layer(WIDTH), Error()]


@pytest.fixture
def settings(tmp_path):
    return dict(data=SAMPLES, steps=6, micro_batch_size=2, global_batch_size=4, learning_rate=0.05, warmup_steps=0, lr_schedule="constant",
                weight_decay=0, gradient_clipping=0, precision="fp32", device="cpu", threads=1, data_order="sequential",
                out=tmp_path / "run")


def on(tier, tmp_path):
    return dict(nvme=tmp_path / "nvme", place_parameters=tier, place_gradients=tier, place_optimizer=tier)


def train(settings, model=None, **more):
    steps = []
    result = sp.Trainer(**{"model": model or blocks(), **settings, **more}).train(steps.append, log=quiet, progress=False)
    return result, [step.loss for step in steps]


def weights(result):
    return (result.checkpoint / "model.safetensors").read_bytes()


def test_losses_are_those_of_a_loop_by_hand(settings):
    """In fp64 against NumPy: ten samples in steps of four, so that the third step of each epoch has only two."""
    first = np.random.default_rng(1).normal(size=(WIDTH, 3)) * 0.5
    last = np.random.default_rng(2).normal(size=(1, WIDTH)) * 0.5

    class Started(sp.Block):
        def __init__(self, start):
            self.change = sp.Parameter(start.shape, "zeros")
            self.start = sp.tensor(start)

        def forward(self):
            return self.change + self.start

    class First(sp.Block):
        def __init__(self):
            self.weight, self.others = Started(first), {"bias": [sp.Parameter((WIDTH,), std=0)]}

        def forward(self, x, batch):
            return sp.tanh(batch["x"] @ self.weight().T + self.others["bias"][0])

    class Last(sp.Block):
        def __init__(self):
            self.weight = Started(last)

        def forward(self, x, batch):
            return batch.loss((sp.linear(x, self.weight()) - batch["y"]) ** 2)

    columns = {name: np.array([sample[name] for sample in SAMPLES]) for name in ("x", "y")}
    result, losses = train(settings, {"first": First(), "last": Last()}, data=columns, precision="fp64", optimizer="sgd")

    w, b, v, expected = first.copy(), np.zeros(WIDTH), last.copy(), []
    for step in range(6):
        rows = slice(step % 3 * 4, min(step % 3 * 4 + 4, 10))
        x, y = columns["x"][rows], columns["y"][rows]
        h = np.tanh(x @ w.T + b)
        error = h @ v.T - y
        expected.append((error ** 2).sum() / len(x))
        dy = 2 * error / len(x)
        dz = dy @ v * (1 - h ** 2)
        v, w, b = v - 0.05 * (dy.T @ h), w - 0.05 * (dz.T @ x), b - 0.05 * dz.sum(0)
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-13)
    header = weights(result)
    assert all(name.encode() in header for name in ("first.weight.change", "first.others.bias.0", "last.weight.change"))


def test_bits_do_not_depend_on_where_the_bytes_lie(settings, tmp_path):
    base, losses = train(settings)
    assert len(losses) == 6 and losses[-1] < losses[0]
    local = dict(ranks=2, communicator="local")
    for name, more in {
        "nvme": dict(on("nvme", tmp_path), recompute="block"),
        "stages": dict(on("nvme", tmp_path), pipeline_stages=2, **local),
    }.items():
        result, others = train(settings, **more, out=tmp_path / name)
        assert result.finished and weights(result) == weights(base), name
        assert others == losses, name
    zero = [train(settings, **more, **local, zero_stage=stage, out=tmp_path / f"zero{stage}")
            for stage, more in ((0, {}), (3, on("nvme", tmp_path)))]
    assert zero[0][1] == zero[1][1] and weights(zero[0][0]) == weights(zero[1][0])
    np.testing.assert_allclose(zero[0][1], losses, atol=1e-5)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("own_block", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_learns(example, tmp_path, capsys):
    example.main(tmp_path / "run")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("finished: ") and float(lines[-2].split()[-1]) < 1e-3


def test_killed_and_gone_on_with_the_same_bits(example, tmp_path):
    """Weights, gradients and state on nvme, two ranks as two stages, killed twice."""
    whole = example.trainer(tmp_path / "whole").train(log=quiet, progress=False)
    script = ("import importlib.util, os, signal, sys\n"
              f"spec = importlib.util.spec_from_file_location('own_block', {str(EXAMPLE)!r})\n"
              "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
              "def hear(event):\n"
              "    if event.step == int(sys.argv[1]): os.kill(os.getpid(), signal.SIGKILL)\n"
              f"module.trainer({str(tmp_path / 'run')!r}, {str(tmp_path / 'nvme')!r}, 2, 2).train(hear, log=print, progress=False)\n")
    for at in (3, 120):
        killed = subprocess.run([sys.executable, "-c", script, str(at)], capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert "continues at step 3 of 200" in killed.stdout or "continues at step 2 of 200" in killed.stdout
    gone_on = subprocess.run([sys.executable, "-c", script, "0"], capture_output=True, text=True, check=True)
    assert "continues at step 1" in gone_on.stdout
    last = tmp_path / "run/checkpoints" / whole.checkpoint.name / "model.safetensors"
    assert last.read_bytes() == weights(whole)


def test_a_shared_parameter_and_one_that_is_not_trained(settings, tmp_path):
    table = sp.Parameter((WIDTH, WIDTH), std=0.5)
    frozen = sp.Parameter((WIDTH,), std=1, requires_grad=False)

    class Turn(sp.Block):
        def __init__(self):
            self.table, self.frozen = table, frozen

        def forward(self, x, batch):
            return sp.tanh(sp.linear(x, self.table, self.frozen))

    base, losses = train(settings, [Layer(3), Turn(), Turn(), Error()])
    stages, others = train(settings, [Layer(3), Turn(), Turn(), Error()], ranks=2, pipeline_stages=2, communicator="local",
                           out=tmp_path / "stages")
    assert losses == others and weights(base) == weights(stages)
    assert weights(base).count(b"table") == 1 and weights(base).count(b"frozen") == 1


def test_dropout_is_repeated_by_recomputation(settings, tmp_path):
    class Dropping(Layer):
        def forward(self, x, batch):
            return batch.dropout(super().forward(batch.dropout(x, 0.5), batch), 0.25)

    def model():
        return [Layer(3), Dropping(WIDTH), Error()]

    kept, losses = train(settings, model())
    again, others = train(settings, model(), recompute="block", out=tmp_path / "again")
    assert losses == others and weights(kept) == weights(again)
    assert losses != train(settings, out=tmp_path / "without")[1]


def test_validation_and_the_state_of_the_batch(settings):
    validations, seen = [], set()

    class Watching(Error):
        def forward(self, x, batch):
            if validations or seen:  # not in calls before the first step, in which rows and mode vary
                seen.add((batch.training, len(batch), batch["y"].shape))
            return super().forward(x, batch)

    sp.Trainer(model=[Layer(3), Watching()], validation_data=SAMPLES[:3], validate_every=3, **settings).train(
        lambda step: seen.add(None), validations.append, log=quiet, progress=False)
    assert [e.step for e in validations] == [3, 6]
    assert seen == {None, (True, 2, (2, 1)), (False, 2, (2, 1))}


def test_blocks_that_read_tokens(tmp_path, text):
    class Words(sp.Block):
        def __init__(self):
            self.table = sp.Parameter((256, 16), std=0.1, embedding=True)

        def forward(self, x, batch):
            return sp.embedding(batch.tokens, self.table)

    class Head(sp.Block):
        def __init__(self, table, fused):
            self.table, self.fused = table, fused

        def forward(self, x, batch):
            if self.fused:
                return batch.linear_cross_entropy(x, self.table)
            return batch.cross_entropy(sp.linear(x, self.table))

    losses = []
    for fused in (True, False):
        words = Words()
        _, some = train(dict(data=text, sequence_length=16, micro_batch_size=2, global_batch_size=4, steps=30, learning_rate=0.05,
                             warmup_steps=0, precision="fp32", device="cpu", out=tmp_path / str(fused)), [words, Head(words.table, fused)])
        losses.append(some)
    np.testing.assert_allclose(losses[0], losses[1], atol=1e-4)
    assert abs(losses[0][0] - np.log(256)) < 0.1 and losses[0][-1] < losses[0][0] - 1
    with pytest.raises(sp.UsageError, match="sequence_length"):
        train(dict(data=text, steps=1, device="cpu", out=tmp_path / "none"), [words, Head(words.table, True)])


class Mine(Exception):
    pass


def test_exceptions_of_blocks_and_data_come_out(settings, tmp_path):
    steps = []

    class Failing(Error):
        def forward(self, x, batch):
            if len(steps) > 2 and threading.current_thread() is not threading.main_thread():
                raise Mine("in the last stage")
            return super().forward(x, batch)

    local = dict(ranks=2, communicator="local", pipeline_stages=2, checkpoint_every=1)
    with pytest.raises(Mine, match="in the last stage") as error:
        sp.Trainer(model=[Layer(3), Failing()], **settings, **local).train(steps.append, log=quiet, progress=False)
    assert error.traceback[-1].name == "forward"
    steps.clear()
    result = sp.Trainer(model=[Layer(3), Error()], **settings, **local).train(steps.append, log=quiet, progress=False)
    assert result.finished and [step.step for step in steps] in ([3, 4, 5, 6], [4, 5, 6])  # the steps after the last checkpoint

    class Samples:
        def __len__(self):
            return 10

        def __getitem__(self, i):
            if i == 9:
                raise Mine("sample 9")
            return SAMPLES[i]

    with pytest.raises(Mine, match="sample 9"):
        train(settings, data=Samples(), out=tmp_path / "data")


def test_ctrl_c_in_a_forward_saves(settings):
    steps = []

    class Interrupting(Error):
        def forward(self, x, batch):
            if len(steps) == 2:
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000):
                    pass
            return super().forward(x, batch)

    with pytest.raises(KeyboardInterrupt):
        sp.Trainer(model=[Layer(3), Interrupting()], **settings).train(steps.append, log=quiet, progress=False)
    assert [step.step for step in steps] in ([1, 2], [1, 2, 3]) and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    steps = [None, None]
    sp.Trainer(model=[Layer(3), Error()], **settings).train(steps.append, log=quiet, progress=False)
    assert [step.step for step in steps[2:]] == [4, 5, 6]


def first_returns(compute):
    class First(Layer):
        def forward(self, x, batch):
            return compute(self, batch)

    return [First(3), Error()]


class Last(Error):
    def __init__(self, compute):
        super().__init__()
        self.compute = compute

    def forward(self, x, batch):
        return self.compute(self, x, batch)


kept = []


def keep(block, batch):
    y = Layer.forward(block, None, batch)
    kept.append(y)
    return y + kept[0]


outside = sp.ones((WIDTH,)).requires_grad_()
def turning(block, batch):
    once.append(batch)
    y = Layer.forward(block, None, batch)
    return y if len(once) % 2 else y.reshape(len(batch), 1, WIDTH)


stranger = sp.Parameter((WIDTH,))
other = Layer(3)
once = []


@pytest.mark.parametrize("model, words", [
    (first_returns(lambda block, batch: None), "block `0`.*Tensor, got NoneType"),
    (first_returns(lambda block, batch: sp.zeros((len(batch), WIDTH))), "`0`.*does not use 0.weight"),
    (first_returns(lambda block, batch: sp.tanh(sp.linear(batch["x"], block.weight))), "`0`.*does not use 0.bias"),
    (first_returns(lambda block, batch: Layer.forward(block, None, batch).detach()), "`0`.*no gradient flows"),
    (first_returns(lambda block, batch: Layer.forward(block, None, batch) + outside), "requires_grad"),
    (first_returns(lambda block, batch: Layer.forward(block, None, batch) + stranger), r"`0`.*its own parameters.*\[8\]"),
    (first_returns(lambda block, batch: Layer.forward(other, None, batch)), "`0`.*its own parameters"),
    (first_returns(lambda block, batch: Layer.forward(block, None, batch).sum(0)), r"`0`.*axes \[2\] of the batch"),
    (first_returns(lambda block, batch: block.weight.copy_(np.zeros((WIDTH, 3)))), "copy_"),
    (first_returns(lambda block, batch: block.weight.requires_grad_()), "operations on tensors"),
    (first_returns(lambda block, batch: Layer.forward(block, None, batch) * Layer.forward(block, None, batch).sum().item()), "`0`.*numbers"),
    (first_returns(turning), r"`0`.*same output.*\[\d, (1, )?8\].*\[\d, (1, )?8\]"),
    (first_returns(lambda block, batch: batch["z"]), "x, y.*got z"),
    (first_returns(lambda block, batch: batch.tokens), "reads tokens"),
    (first_returns(keep), "an earlier forward"),
    ([Layer(3), Last(lambda block, x, batch: sp.linear(x, block.weight))], r"`1`.*last block.*f32 \[2, 1\]"),
    ([Layer(3), Last(lambda block, x, batch: ((sp.linear(x, block.weight) - batch["y"]) ** 2).sum())], "`1`.*last block.*f32"),
    ([Layer(3), Last(lambda block, x, batch: batch.loss(sp.linear(x, block.weight).detach()))], "`1`.*(no gradient flows|its input)"),
    ([Layer(3), Last(lambda block, x, batch: batch.loss(sp.linear(batch["y"] + sp.zeros((WIDTH,)), block.weight)))], "`1`.*its input x"),
    ([Layer(3), Last(lambda block, x, batch: batch.cross_entropy(x))], "reads tokens"),
    ([Layer(3), Last(lambda block, x, batch: batch.loss(batch.loss(sp.linear(x, block.weight)).backward()))], "operations on tensors"),
])
def test_refusals_in_forward(settings, model, words):
    kept.clear(), once.clear()
    with pytest.raises(sp.SpillwayError, match=words):
        train(settings, model)
    assert not (settings["out"] / "checkpoints").exists()


def test_refusals_outside_of_forward(settings):
    parameter = Layer(3).weight
    assert parameter.shape == (8, 3) and repr(parameter) == "Parameter([8, 3])"
    batches = []

    class Keeping(Error):
        def forward(self, x, batch):
            batches.append((batch, x))
            return super().forward(x, batch)

    train(settings, [Layer(3), Keeping()])
    with pytest.raises(sp.UsageError, match="an earlier forward"):
        batches[-1][0].training
    with pytest.raises(sp.UsageError, match="an earlier forward"):
        batches[-1][1].numpy()
    for bad, words in ((dict(init="normals"), "normals"), (dict(std=-1), "std"), (dict(data=(0, 2)), "shape")):
        with pytest.raises(sp.UsageError, match=words):
            sp.Parameter(**{"data": (2,), **bad})


@pytest.mark.parametrize("change, words", [
    (dict(data=None), "data: expected samples"),
    (dict(data=iter(SAMPLES)), "data: expected a sequence"),
    (dict(data=[(1.0, 2.0)]), r"data\[0\]: expected a dictionary"),
    (dict(data=[]), "at least one sample"),
    (dict(data={"x": [[1.0]], "y": [[1.0], [2.0]]}), r"data\[y\]: expected one row for each sample, 1 as in"),
    (dict(data=[*SAMPLES[:9], {"x": [1.0, 2.0], "y": [0.0]}]), r"data\[9\]\[x\]: expected the shape of the first sample, \[3\], got \[2\]"),
    (dict(data=[*SAMPLES[:9], {"x": [1.0, 2.0, 3.0]}]), r"data\[9\]: expected the names"),
    (dict(validation_data="kjv.txt"), "validation_data: expected the same kind"),
    (dict(name="gpt2-tiny"), "preset"),
    (dict(out=None), "--out"),
    (dict(learning_rate=-1), "learning"),
    (dict(tokenizer="bytes"), "tokenizer"),
    (dict(model=[Layer(3), "gpt2-tiny"]), "expected Modules, got str as block 1"),
])
def test_refusals_of_arguments(settings, change, words):
    with pytest.raises(sp.SpillwayError, match=words):
        train({**settings, **change})
    assert not (settings["out"] / "config.json").exists()


def test_values_can_be_looked_at(settings):
    """numpy() in a forward is a copy that stays; before the first step there are no values."""
    seen = []

    class Looking(Layer):
        def forward(self, x, batch):
            y = super().forward(x, batch)
            try:
                seen.append(y.numpy())
            except sp.UsageError:
                seen.append(None)
            return y

    train(settings, [Looking(3), Error()])
    values = [one for one in seen if one is not None]
    assert seen[0] is None and len(values) >= 12 and all(one.shape[1:] == (WIDTH,) and np.abs(one).max() <= 1 for one in values)
