#!/usr/bin/env python3
"""Seconds a step and peak memory of one model of transformers: PyTorch's own loop with everything in memory, and Spillway with PyTorch's blocks,
in turn, each in a process of its own.

  PYTHONPATH=build/release/python bench/torch_steps.py [--model gpt2|llama] [--rows N] [--tokens N] [--steps N] [--rounds N] [--nvme FOLDER]

gpt2 has the 124 million parameters of GPT-2, llama 0.44 billion; weights are random, data are random tokens, the optimizer is AdamW with clipping,
the type fp32, the device the CPU. With --nvme a third way has weights, gradients and optimizer state in files of that folder. The first step of
a process is not counted. Prints the median of all steps of all rounds, the fastest step, and the largest resident memory. Needs torch and
transformers.
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
seconds, losses = [], []
"""
PLAIN = COMMON + """
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
for step in range(a["steps"]):
    begin = time.perf_counter()
    rows = ids[[(step * a["rows"] + i) % len(ids) for i in range(a["rows"])]]
    loss = model(input_ids=rows, labels=rows, use_cache=False).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begin)
"""
OURS = COMMON + """
import spillway
place = dict(nvme=a["nvme"], place_parameters="nvme", place_gradients="nvme", place_optimizer="nvme") if a["nvme"] else {}
result = spillway.Trainer(model=model, data={"input_ids": ids, "labels": ids}, out=a["out"], steps=a["steps"], micro_batch_size=a["rows"],
    data_order="sequential", device="cpu", learning_rate=1e-4, lr_schedule="constant", warmup_steps=0, **place).train(progress=False, log=lambda line: None)
seconds, losses = [row["step_ms"] / 1e3 for row in result.history], result.losses
"""
END = """
print(json.dumps({"seconds": seconds, "losses": losses, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["gpt2", "llama"], default="gpt2")
    for name, default in (("rows", 4), ("tokens", 256), ("steps", 6), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--nvme")
    given = parser.parse_args()
    ways = {"PyTorch": (PLAIN, None), "Spillway": (OURS, None), **({"Spillway, all on nvme": (OURS, given.nvme)} if given.nvme else {})}
    found = {name: {"seconds": [], "peak": 0, "losses": []} for name in ways}
    for _ in range(given.rounds):
        for name, (code, nvme) in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                arguments = {**vars(given), "nvme": nvme, "out": f"{folder}/run"}
                printed = subprocess.run([sys.executable, "-c", code + END, json.dumps(arguments)], stdout=subprocess.PIPE, check=True, text=True).stdout
            one = json.loads(printed.splitlines()[-1])
            found[name]["seconds"] += one["seconds"][1:]
            found[name]["peak"] = max(found[name]["peak"], one["peak"])
            found[name]["losses"] = one["losses"]
    first = statistics.median(found["PyTorch"]["seconds"])
    for name, one in found.items():
        middle = statistics.median(one["seconds"])
        print(f"{name:24} {middle:7.3f} s a step (fastest {min(one['seconds']):.3f}), {middle / first:5.3f} of PyTorch's; "
              f"{one['peak'] / 2**30:.2f} GiB; last loss {one['losses'][-1]:.6f}")


if __name__ == "__main__":
    main()
