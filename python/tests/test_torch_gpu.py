"""Models of PyTorch on emulated GPUs (SPILLWAY_CUDA=EMULATED, SPILLWAY_EMULATED_GPUS=2), on which PyTorch's CPU build stands in for its
CUDA build: the numbers are PyTorch's, and all of PyTorch's work is done on the queue on which the run computes."""

import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import emulated_torch  # noqa: E402
import spillway  # noqa: E402
from test_gpu import has_gpus  # noqa: E402
from test_torch import NVME, by_pytorch, loaded, trained  # noqa: E402

pytestmark = pytest.mark.skipif(not has_gpus(2), reason="needs two emulated GPUs")
emulated_torch.install()
HOST = dict(place_parameters="host", place_gradients="host", place_optimizer="host")
TWO = dict(ranks=2, communicator="local")
# Emulated GPUs compute slowly, so the rest of a run is small.
SMALL = dict(device="cuda", precision="fp64", steps=4, threads=1)  # PyTorch's sums depend on the number of threads, which two ranks share
PLACEMENTS = {
    "device": {}, "recomputed": dict(recompute="block"), "host": HOST, "nvme": NVME, "activations too": dict(place_activations="nvme", **NVME),
    "zero 3": dict(zero_stage=3, **TWO), "two stages": dict(pipeline_stages=2, **TWO),
}


class Layer(torch.nn.Module):
    """A block with a constant and a statistic of its own and, if asked for, dropout."""

    def __init__(self, dropout):
        super().__init__()
        self.inner, self.norm, self.dropout = torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(dropout)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 16), persistent=False)

    def forward(self, x):
        return x + self.dropout(torch.tanh(self.norm(self.inner(x)) * self.scale))


def model(dropout=0.0):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), Layer(dropout), Layer(dropout), torch.nn.Linear(16, 4)).double()


def data():
    torch.manual_seed(1)
    return {"x": torch.randn(32, 8, dtype=torch.float64), "y": torch.randn(32, 4, dtype=torch.float64)}


def loss(outputs, batch):
    return torch.nn.functional.mse_loss(outputs, batch["y"])


def test_steps_are_those_of_the_cpu(tmp_path):
    emulated_torch.EmulatedPlace.queues.clear()
    there, _ = trained(tmp_path / "there", model(), data(), loss, **SMALL)
    assert {gpu for gpu, _ in emulated_torch.EmulatedPlace.queues} == {0}
    here, _ = trained(tmp_path / "here", model(), data(), loss, **{**SMALL, "device": "cpu"})
    assert there.losses == pytest.approx(here.losses, rel=1e-12)
    for name, value in loaded(here).items():
        torch.testing.assert_close(loaded(there)[name], value, rtol=1e-10, atol=1e-12)


def test_losses_are_pytorchs(tmp_path):
    rows = data()
    batches = [[{key: value[first : first + 4] for key, value in rows.items()} for first in (8 * step, 8 * step + 4)] for step in range(4)]
    expected = by_pytorch(model().train(), batches, lambda own, batch: loss(own(batch["x"]), batch), steps=4)
    there, _ = trained(tmp_path, model(), rows, loss, **SMALL)
    assert there.losses == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_the_bits_do_not_depend_on_the_place(dropout, tmp_path):
    bits = {}
    for name, place in PLACEMENTS.items():
        folder = tmp_path / name
        folder.mkdir()
        bits[name] = trained(folder, model(dropout), data(), loss, **{**SMALL, **place})[1]
    assert len(set(bits.values())) == 1, bits


def test_each_rank_computes_on_its_gpu(tmp_path):
    emulated_torch.EmulatedPlace.queues.clear()
    trained(tmp_path, model(), data(), loss, **{**SMALL, **PLACEMENTS["zero 3"]})
    assert {gpu for gpu, _ in emulated_torch.EmulatedPlace.queues} == {0, 1}


@pytest.mark.parametrize("ranks, runs", [(1, 1), (4, 1), (1, 2)])
def test_pytorch_may_take_what_the_plan_leaves_to_it(ranks, runs, tmp_path):
    place, lines = emulated_torch.EmulatedPlace, []
    place.most.clear()
    trainer = spillway.Trainer(model=model(), data=data(), loss=loss, out=tmp_path / "run", micro_batch_size=4, ranks=ranks, communicator="local", **SMALL)
    for _ in range(runs):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        trainer.train(progress=False, log=lines.append)
    row = next(line for text in lines for line in text.splitlines() if line.strip().startswith("PyTorch "))
    size, unit = row.split()[1:3]
    planned = float(size) * {"B": 1, "KiB": 2**10, "MiB": 2**20}[unit]
    each = [pytest.approx(planned * math.ceil(ranks / 2), rel=0.01)]  # four ranks share the two GPUs
    assert [place.most[gpu] for gpu in sorted(place.most)] == each * min(ranks, 2)
    assert not place.limits, "the run has ended, and PyTorch is still limited"


def test_work_outside_of_the_queue_is_noticed(tmp_path):
    code = ("import contextlib, emulated_torch, test_torch_gpu as t, pathlib, sys; "
            "emulated_torch.EmulatedPlace.on = lambda self, queue: contextlib.nullcontext(); "
            "t.trained(pathlib.Path(sys.argv[1]), t.model(), t.data(), t.loss, **t.SMALL)")
    folder = pathlib.Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
    ended = subprocess.run([sys.executable, "-c", code, tmp_path], env=environment, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGSEGV, ended.stderr[-2000:]


def test_pytorch_without_cuda_is_refused(tmp_path, monkeypatch):
    from spillway.torch import _place, _skeleton

    monkeypatch.setattr(_skeleton, "Place", _place.Place)
    with pytest.raises(spillway.UsageError, match="expected a PyTorch that can use GPU 0.*finds 0 GPUs.*device=\"cpu\""):
        trained(tmp_path, model(), data(), loss, **SMALL)
