"""Half a billion parameters of a PyTorch model in full, weights, gradients and optimizer state in files, in a memory cgroup of 3 GiB
that the parameters and their state would fill more than twice: the peak is the predicted one, and a killed run goes on with the same
bits. It takes minutes, 14 GiB of disk and, for the cgroup, root (tests/python.cmake)."""

import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
tf = pytest.importorskip("transformers")

GIB = 2**30
LIMIT = 3 * GIB
CGROUP = pathlib.Path("/sys/fs/cgroup/memory/spillway-soak-torch")
CONFIG = dict(vocab_size=32000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, num_key_value_heads=8,
              max_position_embeddings=512)
RUN = f"""
import os, sys, torch, transformers, spillway
torch.manual_seed(0)
ids = torch.randint(0, 32000, (64, 256))
with torch.device("meta"):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{CONFIG!r}))
weights, out, scratch, killed = sys.argv[1:]
def stepped(event):
    if event.step == int(killed):
        os.kill(os.getpid(), 9)
spillway.Trainer(model=model, weights=weights, data={{"input_ids": ids, "labels": ids.clone()}}, out=out, steps=4, micro_batch_size=1,
                 data_order="sequential", device="cpu", learning_rate=1e-4, nvme=scratch, place_parameters="nvme", place_gradients="nvme",
                 place_optimizer="nvme").train(on_step=stepped, progress=False, log=print)
"""


@pytest.fixture
def cgroup():
    CGROUP.mkdir(exist_ok=True)
    (CGROUP / "memory.limit_in_bytes").write_text(str(LIMIT))
    yield CGROUP
    CGROUP.rmdir()


def run(cgroup, folder, name, killed=0):
    command = [sys.executable, "-c", RUN, folder / "weights", folder / name, folder / f"{name}-scratch", str(killed)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: (cgroup / "cgroup.procs").write_text(str(os.getpid())))


def gib(pattern, text):
    size, unit = re.search(pattern + r" ([\d.]+) (\w+)", text).groups()
    return float(size) / {"GiB": 1, "MiB": 1024}[unit]


def bits(folder):
    return hashlib.sha256((folder / "checkpoints/step-00000004/model.safetensors").read_bytes()).hexdigest()


def test_half_a_billion_parameters_in_three_gib(tmp_path, cgroup):
    torch.manual_seed(0)
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**CONFIG))
    assert sum(p.numel() for p in model.parameters()) * 16 > 2 * LIMIT  # fp32 weights, gradients and two moments
    model.save_pretrained(tmp_path / "weights")
    del model
    whole = run(cgroup, tmp_path, "whole")
    assert whole.returncode == 0, whole.stdout[-2000:]
    predicted, peak = gib("the process takes about", whole.stdout), gib("process", whole.stdout[whole.stdout.index("peak memory:"):])
    assert abs(peak - predicted) <= 0.1 * predicted, f"predicted {predicted} GiB, peak {peak} GiB"
    print(f"predicted {predicted} GiB, peak {peak} GiB")
    assert run(cgroup, tmp_path, "killed", killed=2).returncode == -signal.SIGKILL
    again = run(cgroup, tmp_path, "killed")
    assert again.returncode == 0, again.stdout[-2000:]
    assert bits(tmp_path / "killed") == bits(tmp_path / "whole")
