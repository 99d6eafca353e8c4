"""Exceptions in what PyTorch computes for a run: they name their block, end all ranks, and the run goes on from its last checkpoint."""

import gc
import pathlib
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

from test_torch import NVME, PLACEMENTS, RANKS, cross_entropy, points  # noqa: E402
from test_torch_refusals import DONE, Middle, late, model, product, trained  # noqa: E402


class Fault(Exception):
    """An error of the user's own."""


class FailsBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise Fault("backward failed")


def fails(module, x):
    raise Fault("forward failed")


def fails_backward(module, x):
    return FailsBackward.apply(x) @ module.weight if torch.is_grad_enabled() else x @ module.weight


def failing_loss(output, batch):
    if DONE[0] >= 3:
        raise Fault("loss failed")
    return cross_entropy(output, batch)


class FailingData:
    """Rows are read some steps before they are needed."""

    def __len__(self):
        return 24

    def __getitem__(self, row):
        if DONE[0] >= 3:
            raise Fault("data failed")
        return {key: value[row] for key, value in points().items()}


FAULTS = {
    "forward": (late(fails), cross_entropy, points, "forward failed", "forward of block `1`, module 1 (Middle)"),
    "backward": (late(fails_backward), cross_entropy, points, "backward failed", "backward of block `1`"),
    "loss": (lambda: model(product), failing_loss, points, "loss failed", "forward of block `2`"),
    "data": (lambda: model(product), cross_entropy, FailingData, "data failed", None),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("placement", ["recomputed", "nvme, graph kept", "two stages", "zero 3 on nvme"])
def test_the_run_goes_on_after_an_exception(name, placement, tmp_path):
    make, loss, data, says, note = FAULTS[name]
    more = dict(PLACEMENTS[placement], checkpoint_every=1, steps=14)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir(), cut.mkdir()
    expected, bits = trained(whole, model(product), points(), cross_entropy, **more)
    with pytest.raises(Fault, match=says) as raised:
        trained(cut, make(), data(), loss, **more)
    assert note is None or note in raised.value.__notes__
    saved = [int(one.name.rpartition("-")[2]) for one in (cut / "run" / "checkpoints").iterdir() if one.name.rpartition("-")[2].isdigit()]
    assert saved and 0 < max(saved) < 14
    result, again = trained(cut, model(product), points(), cross_entropy, **more)
    assert result.losses == expected.losses and again == bits


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("placement", ["two stages", "zero 3"])
def test_an_exception_on_one_rank_ends_all(placement, rank, tmp_path):
    threads, lock = {}, threading.Lock()

    def act(module, x):
        if DONE[0] == 0:
            return x @ module.weight
        with lock:
            number = threads.setdefault(threading.get_ident(), len(threads))
        if number == rank and DONE[0] >= 3:
            raise Fault("one rank failed")
        return x @ module.weight

    torch.manual_seed(0)
    made = torch.nn.Sequential(Middle(act), Middle(act), Middle(lambda module, x: act(module, x)[:, :3]))
    with pytest.raises(Fault, match="one rank failed") as raised:
        trained(tmp_path, made, points(), cross_entropy, **PLACEMENTS[placement])
    assert raised.value.__notes__[0].startswith("forward of block")


def test_a_traceback_can_be_printed_after_the_run(tmp_path):
    """The frames of the traceback hold what were views of memory that the run has given back."""
    def act(module, x):
        view = module.weight  # noqa: F841
        if DONE[0] >= 3:
            raise Fault("forward failed")
        return x @ module.weight

    for placement in (NVME, RANKS):
        folder = tmp_path / str(len(placement))
        folder.mkdir()
        try:
            trained(folder, model(act), points(), cross_entropy, **placement)
            raise AssertionError("it must fail")
        except Fault as error:
            gc.collect()
            trace, texts = error.__traceback__, []
            while trace is not None:
                texts += [repr(value) for value in list(trace.tb_frame.f_locals.values()) if isinstance(value, (torch.Tensor, list))]
                trace = trace.tb_next
            assert any("nan" in text for text in texts)


SCRIPT = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import torch, spillway
import test_torch as t, test_torch_faults as f, test_torch_refusals as r
calls = [0]
def act(module, x):
    calls[0] += 1
    if sys.argv[4] == "interrupt" and r.DONE[0] == int(sys.argv[3]):
        r.DONE[0] = 0
        os.kill(os.getpid(), signal.SIGINT)
    if sys.argv[4] == "raise" and calls[0] == int(sys.argv[3]) and os.environ["RANK"] == "1":
        raise f.Fault("a process failed")
    return r.product(module, x)
ranks = dict(zero_stage=3) if "RANK" in os.environ else {}
settings = {**t.SETTINGS, **t.NVME, **ranks, "nvme": sys.argv[1] + "/scratch", "checkpoint_every": 2}
result = spillway.Trainer(model=r.model(act), data=t.points(), loss=t.cross_entropy, out=sys.argv[1] + "/run", **settings).train(
    progress=False, on_step=lambda event: r.DONE.__setitem__(0, event.step))
print(result.losses)
"""


def started(folder, call, how, *launcher):
    folder.mkdir(exist_ok=True)
    script = folder / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, *launcher, script, folder, pathlib.Path(__file__).parent, str(call), how]
    return subprocess.run(command, check=False, text=True, capture_output=True, timeout=120)


def test_ctrl_c_in_a_forward_saves_the_step(tmp_path):
    whole, _ = trained(tmp_path, model(product), points(), cross_entropy, **NVME)
    cut = started(tmp_path / "cut", 3, "interrupt")
    assert cut.returncode != 0 and "KeyboardInterrupt" in cut.stderr
    again = started(tmp_path / "cut", -1, "")
    assert again.returncode == 0 and again.stdout == f"{whole.losses}\n"
    assert "continues at step 4 of 6" in again.stderr


def test_an_exception_in_a_process_of_torchrun(tmp_path):
    whole, _ = trained(tmp_path, model(product), points(), cross_entropy, **PLACEMENTS["zero 3 on nvme"])
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    cut = started(tmp_path / "cut", 14, "raise", *launcher)
    assert cut.returncode != 0 and "forward of block `1`, module 1 (Middle)" in cut.stderr and "a process failed" in cut.stderr
    again = started(tmp_path / "cut", -1, "", *launcher)
    assert again.returncode == 0 and again.stdout.split("\n")[0] == str(whole.losses)
