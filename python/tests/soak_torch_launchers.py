"""One script of the user's that trains a PyTorch model, started by torchrun, mpirun and srun: the losses are those of one rank
(tests/python.cmake)."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch")

SCRIPT = """
import json, sys, torch, spillway
torch.manual_seed(0)
layers = [torch.nn.Linear(8, 16), *(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()) for _ in range(4)), torch.nn.Linear(16, 4)]
model = torch.nn.Sequential(*layers).double()
data = {"x": torch.randn(64, 8, dtype=torch.float64), "y": torch.randn(64, 4, dtype=torch.float64)}
result = spillway.Trainer(model=model, data=data, loss=lambda outputs, batch: torch.nn.functional.mse_loss(outputs, batch["y"]), out=sys.argv[1],
                          steps=6, micro_batch_size=2, global_batch_size=8, zero_stage=3, device="cpu", threads=1, tensorboard="off").train(
    progress=False, log=lambda line: None)
print("losses", json.dumps(result.losses), flush=True)
"""
CLUSTER = pathlib.Path(__file__).parents[2] / "tests/e2e/slurm/cluster.sh"


def losses(command, folder, environment=None):
    (folder / "script.py").write_text(SCRIPT)
    ended = subprocess.run([*command, folder / "script.py", folder / "run"], env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=500)
    assert ended.returncode == 0, ended.stdout[-3000:]
    said = [json.loads(line.split("losses ", 1)[1]) for line in ended.stdout.splitlines() if "losses " in line]
    assert said and all(one == said[0] for one in said), ended.stdout[-3000:]
    return said[0]


@pytest.fixture(scope="module")
def of_one_rank(tmp_path_factory):
    return losses([sys.executable], tmp_path_factory.mktemp("one"))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_torchrun(ranks, of_one_rank, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    assert losses(command, tmp_path) == pytest.approx(of_one_rank, rel=1e-12)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_mpirun(ranks, of_one_rank, tmp_path):
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), sys.executable]
    assert losses(command, tmp_path) == pytest.approx(of_one_rank, rel=1e-12)


@pytest.mark.skipif(os.getuid() != 0 or not os.path.exists("/usr/sbin/slurmd"), reason="a Slurm of one's own needs root and slurmd")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_srun(ranks, of_one_rank, tmp_path):
    command = [CLUSTER, tmp_path / "slurm", "srun", "-n", str(ranks), sys.executable]
    assert losses(command, tmp_path) == pytest.approx(of_one_rank, rel=1e-12)
