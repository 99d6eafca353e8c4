#!/usr/bin/env python3
"""Seconds a step and peak memory of one model of transformers, trained with Spillway and PyTorch's blocks and by what one would take instead,
in turn, each in a process of its own.

  PYTHONPATH=build/release/python bench/torch_steps.py [--model gpt2|llama] [--rows N] [--tokens N] [--steps N] [--rounds N] [--nvme FOLDER]
      [--device cpu|cuda] [--ways NAME,…]

The ways are torch (PyTorch's own loop with everything in memory), ours, ours-nvme (weights, gradients and optimizer state in files), ds-cpu and
ds-nvme (DeepSpeed's ZeRO stage 3, which offloads the optimizer and the weights to host memory or to files), and fsdp (FSDP2 with
CPUOffloadPolicy). The two with files need --nvme. gpt2 has the 124 million parameters of GPT-2, llama 0.44 billion; weights are random, data are
random tokens, the optimizer is AdamW with clipping, the type fp32. The first step of a process is not counted. Prints the median of all steps of
all rounds, the fastest step, and the largest resident memory. Needs torch and transformers, and for ds-… deepspeed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

COMMON = """
import json, logging, os, resource, sys, time, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
import torch, transformers as tf
a = json.loads(sys.argv[1])
if a["model"] == "gpt2":
    config = tf.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
else:
    config = tf.LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, num_key_value_heads=8)
torch.manual_seed(0)
ids = torch.randint(0, 30000, (16 * a["rows"], a["tokens"]))
model = tf.AutoModelForCausalLM.from_config(config)
model.train()
seconds, losses = [], []

def timed(one_step):
    for step in range(a["steps"]):
        begin = time.perf_counter()
        losses.append(one_step(ids[[(step * a["rows"] + i) % len(ids) for i in range(a["rows"])]].to(a["device"])).item())
        seconds.append(time.perf_counter() - begin)

def by_torch(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    def one_step(rows):
        loss = model(input_ids=rows, labels=rows, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()
    timed(one_step)

def one_rank():
    for key, value in dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29555").items():
        os.environ.setdefault(key, value)
"""
PLAIN = COMMON + """
by_torch(model.to(a["device"]))
"""
FSDP = COMMON + """
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.device_mesh import init_device_mesh
one_rank()
torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if a["device"] == "cuda" else "gloo")
mesh = init_device_mesh(a["device"], (1,))
policy = CPUOffloadPolicy(pin_memory=a["device"] == "cuda")
for layer in (model.transformer.h if a["model"] == "gpt2" else model.model.layers):
    fully_shard(layer, mesh=mesh, offload_policy=policy)
fully_shard(model, mesh=mesh, offload_policy=policy)
by_torch(model)
"""
DEEPSPEED = COMMON + """
one_rank()
if a["device"] == "cpu":
    os.environ.update(DS_ACCELERATOR="cpu", DS_SKIP_CUDA_CHECK="1")
import deepspeed
place = {"device": "nvme", "nvme_path": a["nvme"], "pin_memory": False} if a["nvme"] else {"device": "cpu"}
buffers = {"buffer_count": 64, "buffer_size": 40_000_000} if a["nvme"] else {}
config = {"train_micro_batch_size_per_gpu": a["rows"], "gradient_accumulation_steps": 1, "gradient_clipping": 1.0, "steps_per_print": 10**9,
          "zero_optimization": {"stage": 3, "offload_param": {**place, **buffers}, "offload_optimizer": place},
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
          "aio": {"block_size": 1 << 20, "queue_depth": 8, "intra_op_parallelism": 1}}
deepspeed.init_distributed(dist_backend="gloo" if a["device"] == "cpu" else "nccl", verbose=False)
engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
def one_step(rows):
    loss = engine(input_ids=rows, labels=rows, use_cache=False).loss
    engine.backward(loss)
    engine.step()
    return loss.detach()
timed(one_step)
"""
OURS = COMMON + """
import spillway
place = dict(nvme=a["nvme"], place_parameters="nvme", place_gradients="nvme", place_optimizer="nvme") if a["nvme"] else {}
result = spillway.Trainer(model=model, data={"input_ids": ids, "labels": ids}, out=a["out"], steps=a["steps"], micro_batch_size=a["rows"],
    data_order="sequential", device=a["device"], precision="fp32", learning_rate=1e-4, lr_schedule="constant", warmup_steps=0, **place).train(progress=False, log=lambda line: None)
seconds, losses = [row["step_ms"] / 1e3 for row in result.history], result.losses
"""
END = """
print(json.dumps({"seconds": seconds, "losses": losses, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""
WAYS = {"torch": PLAIN, "ours": OURS, "ours-nvme": OURS, "ds-cpu": DEEPSPEED, "ds-nvme": DEEPSPEED, "fsdp": FSDP}


def run(name: str, settings: dict) -> dict:
    """Runs one way in a process of its own. Its files on --nvme are deleted afterwards."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=settings["nvme"]) as files:
        arguments = {**settings, "nvme": files if name.endswith("-nvme") else None, "out": f"{folder}/run"}
        command = [sys.executable, "-c", WAYS[name] + END, json.dumps(arguments)]
        printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["gpt2", "llama"], default="gpt2")
    for name, default in (("rows", 4), ("tokens", 256), ("steps", 6), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--nvme")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--ways", type=lambda names: names.split(","), default=["torch", "ours"])
    given = parser.parse_args()
    for name in given.ways:
        if name not in WAYS or (name.endswith("-nvme") and given.nvme is None):
            parser.error(f"--ways: expected some of {', '.join(WAYS)}, of which those with files need --nvme, got {name}")
    found: dict[str, list[dict]] = {name: [] for name in given.ways}
    for _ in range(given.rounds):
        for name, runs in found.items():
            runs.append(run(name, vars(given)))
    seconds = {name: [s for one in runs for s in one["seconds"][1:]] for name, runs in found.items()}
    first = statistics.median(seconds[given.ways[0]])
    for name, runs in found.items():
        middle = statistics.median(seconds[name])
        print(f"{name:10} {middle:7.3f} s a step (fastest {min(seconds[name]):.3f}), {middle / first:5.3f} of {given.ways[0]}'s; "
              f"{max(one['peak'] for one in runs) / 2**30:.2f} GiB; last loss {runs[-1]['losses'][-1]:.6f}")


if __name__ == "__main__":
    main()
