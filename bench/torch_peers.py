#!/usr/bin/env python3
"""Training steps beside PyTorch eager on the CPU, in turn, same shapes, same threads, random weights: GPT-2 124M, a model of Qwen3.5's shape
and one of gpt-oss's (transformers' models, fused AdamW), PyTorch's CIFAR tutorial network and ResNet-18 (torchvision's, channels_last at
224; SGD with momentum). Ours is `spillway train`, metrics and all. Prints the runs and the medians. Rows of the second and third model are
packed of documents of some hundred tokens on our side; PyTorch's are one document each, because transformers keeps documents apart in
linear attention only with packages for GPUs.

  bench/torch_peers.py --program build/release/spillway --folder /scratch [--rounds 5] [--threads 2] [--isa avx2] [--only TEXT]

Needs torch, transformers, torchvision and Pillow. --isa avx2 holds both sides to AVX2. Every round starts both anew; a round's figure is the
median of the steps after the third; the peak is of the process (ru_maxrss).
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

STEPS = {"gpt2": 8, "cifar-net": 60, "resnet18": 8, "qwen3.5": 6, "gpt-oss": 6}
# Qwen3.5: 0.5 billion parameters; gpt-oss: 0.3 billion, of which a token uses a third.
DECODERS = {
    "qwen3.5": dict(model_type="qwen3_5_text", hidden_size=1024, intermediate_size=3584, num_hidden_layers=20, num_attention_heads=8,
                    num_key_value_heads=2, head_dim=256, linear_num_key_heads=16, linear_num_value_heads=16, linear_key_head_dim=128,
                    linear_value_head_dim=128, linear_conv_kernel_dim=4, vocab_size=32768, max_position_embeddings=4096,
                    tie_word_embeddings=True, rms_norm_eps=1e-6),
    "gpt-oss": dict(model_type="gpt_oss", hidden_size=1024, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=16,
                    num_key_value_heads=4, head_dim=64, num_local_experts=16, num_experts_per_tok=4, sliding_window=128, vocab_size=32768,
                    max_position_embeddings=4096, tie_word_embeddings=False)}
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}

# In a process of its own; the last line of its output is the result.
PEER = r"""
import json, resource, statistics, sys, time, torch
import torch.nn as nn, torch.nn.functional as F
name, rows, length, precision, steps, threads = sys.argv[1], *map(int, sys.argv[2:4]), sys.argv[4], *map(int, sys.argv[5:7])
torch.set_num_threads(threads)
torch.manual_seed(0)
if name == "gpt2":
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    config._attn_implementation = "sdpa"
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    x, y = torch.randint(0, 50257, (2, rows, length))
    logits = lambda: model(input_ids=x).logits.view(-1, 50257)
elif len(sys.argv) > 7:
    from transformers import AutoConfig, AutoModelForCausalLM
    known = json.loads(sys.argv[7])
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(known.pop("model_type"), **known)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    x, y = torch.randint(0, 256, (2, rows, length))
    logits = lambda: model(input_ids=x, use_cache=False).logits.flatten(0, 1)
else:
    layout = torch.channels_last if length == 224 else torch.contiguous_format
    if name == "resnet18":
        from torchvision.models import resnet18
        model = resnet18(num_classes=10)
    else:
        model = nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                              nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    model = model.train().to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x, y = torch.randn(rows, 3, length, length).to(memory_format=layout), torch.randint(0, 10, (rows,))
    logits = lambda: model(x)
seconds = []
for step in range(steps):
    begin = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = F.cross_entropy(logits().float(), y.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    seconds.append(time.perf_counter() - begin)
print(json.dumps([1e3 * statistics.median(seconds[3:]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def theirs(given, name, rows, length, precision):
    decoder = [json.dumps(DECODERS[name])] if name in DECODERS else []
    done = subprocess.run([sys.executable, "-c", PEER, name, *map(str, (rows, length)), precision, str(STEPS[name]), str(given.threads),
                           *decoder], capture_output=True, text=True, env={**os.environ, **(AVX2 if given.isa == "avx2" else {})})
    if done.returncode:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


def ours(given, name, rows, length, precision):
    out, log = given.folder / "run", given.folder / "log"
    shutil.rmtree(out, ignore_errors=True)
    command = [given.program, "train", "--micro-batch-size", rows, "--precision", precision, "--steps", STEPS[name], "--threads", given.threads,
               "--out", out, "--no-final-checkpoint", "--quiet"]
    if name == "gpt2":
        command += ["--model", "gpt2-124m", "--data", given.folder / "text.txt", "--sequence-length", length, "--learning-rate", "3e-4"]
    elif name in DECODERS:
        (given.folder / name).mkdir(exist_ok=True)
        (given.folder / name / "config.json").write_text(json.dumps(DECODERS[name]))
        command += ["--model", given.folder / name, "--from-scratch", "--data", given.folder / "documents.jsonl", "--sequence-length", length,
                    "--learning-rate", "3e-4"]
    else:
        command += ["--model", name, "--data", images(given, length), "--optimizer", "sgd", "--momentum", "0.9", "--learning-rate", "1e-3"]
    if given.isa:
        command += ["--isa", given.isa]
    with open(log, "w") as said:
        child = subprocess.Popen([str(part) for part in command], stdout=said, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(log.read_text())
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [statistics.median(line["step_ms"] for line in lines[3:]), usage.ru_maxrss / 1024]


# CIFAR-10's binary version of noise; at 224 a folder of PNGs by class, smooth, so that decoding them costs what it does of pictures.
def images(given, side):
    folder = given.folder / f"images-{side}"
    if folder.exists():
        return folder
    draw = random.Random(0)
    if side == 32:
        folder.mkdir()
        for file in ("data_batch_1.bin", "test_batch.bin"):
            (folder / file).write_bytes(b"".join(bytes([i % 10]) + draw.randbytes(3072) for i in range(4096)))
        return folder
    from PIL import Image
    for i in range(80):
        (folder / f"{i % 10}").mkdir(parents=True, exist_ok=True)
        Image.frombytes("RGB", (8, 8), draw.randbytes(192)).resize((side, side), Image.Resampling.BICUBIC).save(folder / f"{i % 10}/{i}.png")
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/spillway")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", choices=("avx2",))
    parser.add_argument("--only", default="", help="rows whose name holds this")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    (given.folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 20000)
    draw = random.Random(0)
    documents = ["x" * draw.randint(100, 500) for _ in range(2000)]
    (given.folder / "documents.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    rows = [("gpt2", b, t, p) for p in ("fp32", "bf16") for b, t in ((4, 64), (4, 256), (2, 1024))]
    rows += [(name, 1, t, p) for name in DECODERS for p in ("fp32", "bf16") for t in (512, 2048)]
    rows += [("cifar-net", b, 32, "fp32") for b in (4, 32, 512)] + [("resnet18", 32, side, "fp32") for side in (32, 224)]
    for name, batch, length, precision in rows:
        title = f"{name} ({batch}, {length}) {precision}"
        if given.only not in title:
            continue
        runs = {"torch": [], "ours": []}
        for _ in range(given.rounds):
            for side, run in (("torch", theirs), ("ours", ours)):
                runs[side].append(run(given, name, batch, length, precision))
        medians = {side: [statistics.median(values) for values in zip(*all_runs)] for side, all_runs in runs.items()}
        for side, (step, peak) in medians.items():
            print(f"{title}, {side}: {step:.2f} ms a step ({' '.join(f'{r[0]:.2f}' for r in runs[side])}; torch / it: "
                  f"{medians['torch'][0] / step:.2f}), peak {peak:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
