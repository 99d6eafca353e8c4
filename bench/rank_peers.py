#!/usr/bin/env python3
"""Two ranks against their peers, in turn: gpt2-124m in bf16, K micro-batches of (4, 64) a rank, one thread a rank. Ours with ZeRO 3 and with
two pipeline stages; PyTorch FSDP2 (autocast), torch.distributed.pipelining (autocast; GPipe, blocks split 8 to 4 since the head weighs
about four) and DeepSpeed ZeRO-3 with CPU offload, all over gloo. Prints tokens/s: medians over the rounds, and our share of each peer.

  bench/rank_peers.py --python PYTHON_WITH_TORCH [--rounds 3] [--micro-batches 8] [--steps 3] [--only NAME ...]
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PEER = r"""
import os, sys, time
mode, K, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
B, T, V, C, LAYERS, HEADS = 4, 64, 50257, 768, 12, 12
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.qkv, self.out = nn.LayerNorm(C), nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.norm2, self.up, self.down = nn.LayerNorm(C), nn.Linear(C, 4 * C), nn.Linear(4 * C, C)
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

class Part(nn.Module):
    def __init__(self, first, last, layers):
        super().__init__()
        self.first, self.last = first, last
        if first:
            self.tokens, self.positions = nn.Embedding(V, C), nn.Embedding(1024, C)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        if last:
            self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, V, bias=False)
        if first and last:
            self.head.weight = self.tokens.weight
    def forward(self, x):
        if self.first:
            x = self.tokens(x) + self.positions(torch.arange(x.size(1)))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)) if self.last else x

def loss_of(logits, targets):
    return F.cross_entropy(logits.reshape(-1, V).float(), targets.reshape(-1))

def autocast():
    return torch.autocast("cpu", torch.bfloat16)

if mode == "deepspeed":
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    model = Part(True, True, LAYERS)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": B, "gradient_accumulation_steps": K, "bf16": {"enabled": True}, "steps_per_print": 10**9,
        "zero_force_ds_cpu_optimizer": False, "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}},
        "zero_optimization": {"stage": 3, "overlap_comm": False, "offload_optimizer": {"device": "cpu", "pin_memory": False}}})
else:
    dist.init_process_group("gloo")
rank = dist.get_rank()
x, y = torch.randint(0, V, (2, 2 * K * B, T))
mine = slice(rank * K * B, (rank + 1) * K * B)

if mode == "pipeline":
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    model = Part(rank == 0, rank == 1, 8 if rank == 0 else 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    schedule = ScheduleGPipe(PipelineStage(model, rank, 2, torch.device("cpu")), n_microbatches=2 * K, loss_fn=loss_of)
    def step():
        optimizer.zero_grad()
        with autocast():
            schedule.step(x) if rank == 0 else schedule.step(target=y, losses=[])
        optimizer.step()
elif mode.startswith("fsdp"):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model, mesh = Part(True, True, LAYERS), init_device_mesh("cpu", (2,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
    rows = K * B if mode == "fsdp-one-batch" else B
    def step():
        optimizer.zero_grad()
        parts = list(zip(x[mine].split(rows), y[mine].split(rows)))
        for k, (tokens, targets) in enumerate(parts):
            model.set_requires_gradient_sync(k + 1 == len(parts))
            with autocast():
                loss = loss_of(model(tokens), targets) / len(parts)
            loss.backward()
        optimizer.step()
else:
    def step():
        for tokens, targets in zip(x[mine].split(B), y[mine].split(B)):
            engine.backward(loss_of(engine(tokens), targets))
            engine.step()

seconds = []
for i in range(1 + steps):
    dist.barrier()
    begin = time.monotonic()
    step()
    dist.barrier()
    seconds.append(time.monotonic() - begin)
if rank == 0:
    print("seconds", *seconds[1:], flush=True)
"""


def peer(python, mode, given):
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "peer.py"
        script.write_text(PEER)
        done = subprocess.run([python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29571", str(script), mode,
                               str(given.micro_batches), str(given.steps)], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("seconds"):
            return statistics.median(map(float, line.split()[1:]))
    raise RuntimeError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])


def ours(flags, given):
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("in the beginning was the word, and so on to the end of it.\n" * 4000)
        command = [given.program, "train", "--model", "gpt2-124m", "--data", str(text), "--sequence-length", "64", "--micro-batch-size", "4",
                   "--precision", "bf16", "--steps", str(given.steps + 1), "--no-final-checkpoint", "--threads", "1", "--ranks", "2",
                   "--device-memory", given.device_memory, "--host-memory", "2GiB", "--out", folder + "/run", *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
        rows = [json.loads(line) for line in (Path(folder) / "run/metrics.jsonl").read_text().splitlines()]
    return statistics.median(row["step_ms"] / 1e3 for row in rows[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--device-memory", default="3GiB")
    parser.add_argument("--program", default=str(Path(__file__).parent.parent / "build/release/spillway"))
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    K = given.micro_batches
    runs = {"ours, ZeRO 3": lambda: ours(["--zero-stage", "3", "--gradient-accumulation-steps", str(K)], given),
            "ours, 2 stages": lambda: ours(["--pipeline-stages", "2", "--gradient-accumulation-steps", str(2 * K)], given),
            "FSDP2": lambda: peer(given.python, "fsdp", given),
            "FSDP2, one batch": lambda: peer(given.python, "fsdp-one-batch", given),
            "torch pipeline": lambda: peer(given.python, "pipeline", given),
            "DeepSpeed ZeRO-3": lambda: peer(given.python, "deepspeed", given)}
    if given.only:
        runs = {name: run for name, run in runs.items() if name in given.only}
    rates = {name: [] for name in runs}
    for _ in range(given.rounds):
        for name in list(rates):
            try:
                rates[name].append(2 * K * 4 * 64 / runs[name]())
                print(f"{name}: {rates[name][-1]:.0f} tokens/s", file=sys.stderr)
            except (RuntimeError, OSError) as reason:
                print(f"{name}: left out: {reason}")
                del rates[name]
    medians = {name: statistics.median(of_name) for name, of_name in rates.items() if of_name}
    for name, rate in medians.items():
        print(f"{name:18} {rate:6.0f} tokens/s; rounds:", *(f"{r:.0f}" for r in rates[name]))
    for name, rate in medians.items():
        for other, theirs in medians.items():
            if name.startswith("ours") and not other.startswith("ours"):
                print(f"{name}: {rate / theirs:.2f} times {other}")


main()
