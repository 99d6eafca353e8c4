#!/usr/bin/env python3
"""Fine-tuning and generation beside transformers and PEFT on PyTorch (CPU), in turn, same shapes, same threads, random weights: LoRA steps
(rank 16 on all linear layers, one row of T tokens, AdamW) and greedy tokens of one row, these beside what memory gives in the same minute
(`spillway bench memory`, the median of memory.read: a token reads each weight once). Prints the runs and the medians.

  bench/huggingface_peers.py lora|generate --program build/release/spillway --folder /scratch [--rounds 3] [--threads 2] [--only TEXT]

Needs torch, transformers and peft. Ours starts anew each round, as theirs does: neither profits from the other's caches. The time of a step
is the median of those after the second; the peak is of the process (ru_maxrss). The time of a token is that of 161 less that of 33.
"""
import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

PROMPT = "In the beginning"
SHORT, LONG = 33, 161
HOST, PROGRAM = 40, 100  # MiB of a process beside the device's budget: the host's, and what no plan counts
# In the types in which they are published.
SHAPES = {"gpt2-124m": "GPT2LMHeadModel(GPT2Config())",
          "qwen2.5-0.5b": "Qwen2ForCausalLM(Qwen2Config(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, "
                          "num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True, max_position_embeddings=32768)).bfloat16()"}

MAKE = "import torch, sys; from transformers import *; torch.manual_seed(0); {shape}.save_pretrained(sys.argv[1])"

# Each in a process of its own; the last line of its output is the result.
PEFT = r"""
import json, resource, statistics, sys, time, torch
from transformers import AutoModelForCausalLM
from peft import LoraConfig, get_peft_model
folder, precision, length, steps, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
torch.set_num_threads(threads)
torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")).train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
seconds = []
for step in range(steps):
    ids = torch.randint(0, 256, (1, length))
    begin = time.perf_counter()
    model(input_ids=ids, labels=ids).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    seconds.append(time.perf_counter() - begin)
print(json.dumps([1e3 * statistics.median(seconds[2:]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""

TRANSFORMERS = r"""
import json, sys, time, torch
from transformers import AutoModelForCausalLM
folder, precision, prompt, short, long, threads = *sys.argv[1:4], *map(int, sys.argv[4:7])
torch.set_num_threads(threads)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16 if precision == "bf16" else torch.float32).eval()
ids = torch.tensor([list(prompt.encode())])
def seconds(tokens):
    begin = time.perf_counter()
    with torch.no_grad():
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
    return time.perf_counter() - begin
seconds(4)
print(json.dumps([1e3 * (seconds(long) - seconds(short)) / (long - short)]))
"""


def peer(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


# Megabytes at its peak and seconds, of a child.
def measured(command, log):
    with open(log, "w") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(Path(log).read_text())
    return usage.ru_maxrss / 1024


# `budget`: MiB that the process may take, the rest of the base is on nvme; 0: all of the base is there; None: all is in memory.
def our_lora(given, model, precision, length, budget):
    out = given.folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    command = [given.program, "train", "--model", model, "--data", given.folder / "text.txt", "--tokenizer", "bytes", "--lora", "16",
               "--lora-alpha", "32", "--precision", precision, "--sequence-length", length, "--micro-batch-size", "1", "--steps",
               given.steps, "--learning-rate", "1e-4", "--threads", given.threads, "--out", out, "--no-final-checkpoint", "--quiet"]
    if budget is not None:
        command += ["--nvme", given.folder / "nvme"]
        command += ["--device-memory", f"{budget - HOST - PROGRAM:.0f}MiB", "--host-memory", f"{HOST}MiB"] if budget else ["--place-parameters", "nvme"]
    peak = measured([str(part) for part in command], given.folder / "log")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [statistics.median(line["step_ms"] for line in lines[2:]), peak]


def our_generation(given, model, precision):
    import time
    times = []
    for tokens in (SHORT, LONG):
        begin = time.perf_counter()
        subprocess.run([str(part) for part in (given.program, "generate", "--model", model, "--precision", precision, "--threads",
                                               given.threads, "--tokenizer", "bytes", "--temperature", "0", "--max-tokens", tokens,
                                               "--prompt", PROMPT, "--json")], check=True, capture_output=True)
        times.append(time.perf_counter() - begin)
    return [1e3 * (times[1] - times[0]) / (LONG - SHORT)]


# Milliseconds in which the machine reads a token's weights, of `weights` elements.
def read_by_memory(given, weights, precision):
    done = subprocess.run([given.program, "bench", "memory", "--threads", str(given.threads), "--json"], check=True, capture_output=True,
                          text=True, env={**os.environ, "XDG_CACHE_HOME": str(given.folder / "cache")})
    row = next(row for row in json.loads(done.stdout)["rows"] if row["name"] == "memory.read")
    return [1e3 * weights * (2 if precision == "bf16" else 4) / (row["value"] / (1 + row["spread"]))]


# Of a model whose head is its embedding; of position embeddings a token reads one row.
def weights_read(folder):
    from safetensors import safe_open
    with safe_open(folder / "model.safetensors", "np") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}
    return sum(math.prod(shape) for name, shape in shapes.items() if not name.endswith("wpe.weight"))


def model_folder(given, name):
    folder = given.folder / name
    if not (folder / "model.safetensors").exists():
        subprocess.run([sys.executable, "-c", MAKE.format(shape=SHAPES[name]), str(folder)], check=True, capture_output=True)
    return folder


def rows_of_lora(given):
    (given.folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 20000)
    model = model_folder(given, "qwen2.5-0.5b")
    for precision in ("bf16", "fp32"):
        for length in (128, 512):
            yield f"{precision} T={length}", {
                "PEFT": lambda _, p=precision, t=length: peer(PEFT, model, p, t, given.steps, given.threads),
                "ours": lambda _, p=precision, t=length: our_lora(given, model, p, t, None),
                "ours in half of its memory": lambda theirs, p=precision, t=length: our_lora(given, model, p, t, theirs[1] / 2),
                "ours, base on nvme": lambda _, p=precision, t=length: our_lora(given, model, p, t, 0)}


def rows_of_generate(given):
    for name in SHAPES:
        model = model_folder(given, name)
        for precision in ("fp32", "bf16"):
            yield f"{name} {precision}", {
                "transformers": lambda _, m=model, p=precision: peer(TRANSFORMERS, m, p, PROMPT, SHORT, LONG, given.threads),
                "memory": lambda _, n=weights_read(model), p=precision: read_by_memory(given, n, p),
                "ours": lambda _, m=model, p=precision: our_generation(given, m, p)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("lora", "generate"))
    parser.add_argument("--program", default="build/release/spillway")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    unit = ("ms a step", "peak MiB") if given.what == "lora" else ("ms a token",)
    for row, sides in (rows_of_lora if given.what == "lora" else rows_of_generate)(given):
        if given.only not in row:
            continue
        runs = {side: [] for side in sides}
        theirs = list(sides)[0]
        for _ in range(given.rounds):
            for side, run in sides.items():
                runs[side].append(run(runs[theirs][-1] if runs[theirs] else None))
        medians = {side: [statistics.median(values) for values in zip(*all_runs)] for side, all_runs in runs.items()}
        for side, values in medians.items():
            figures = ", ".join(f"{value:.1f} {what} ({' '.join(f'{r[i]:.1f}' for r in runs[side])}; peer's / it: {medians[theirs][i] / value:.2f})"
                                for i, (value, what) in enumerate(zip(values, unit)))
            print(f"{row}, {side}: {figures}", flush=True)


if __name__ == "__main__":
    main()
