#!/usr/bin/env python3
"""What the labelled approximations cost in validation loss: gpt2-tiny trained on the King James Bible from several seeds, exactly and with
rounded moments, gradients and compute; the difference from the exact run of the same seed, beside the spread over seeds.

usage: bench/convergence.py [--steps 1000] [--seeds 5] [--program build/release/spillway] [--threads N] [--only NAME ...]
Needs build/data/kjv.txt (scripts/quickstart.sh makes it). Prints a Markdown table. A run of 1,000 steps takes about a minute.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess

VARIANTS = {
    "exact": [],
    "bf16 moments": ["--moments", "bf16"],
    "8-bit moments": ["--moments", "8bit"],
    "bf16 gradients": ["--gradient-dtype", "bf16"],
    "bf16 compute": ["--precision", "bf16"],
    "bf16 compute, bf16 gradients, 8-bit moments": ["--precision", "bf16", "--gradient-dtype", "bf16", "--moments", "8bit"],
}


def final_validation_loss(args, flags, seed, folder):
    shutil.rmtree(folder, ignore_errors=True)
    command = [args.program, "train", "--model", "gpt2-tiny", "--from-scratch", "--tokenizer", "bytes", "--data", "build/data/kjv.txt",
               "--validation-fraction", "0.05", "--sequence-length", "64", "--micro-batch-size", "16", "--steps", str(args.steps),
               "--learning-rate", "2e-3", "--warmup-steps", "50", "--seed", str(seed), "--no-final-checkpoint", "--checkpoint-every", "1h",
               "--validate-every", str(args.steps), "--validation-steps", "64", "--out", str(folder)] + flags
    if args.threads:
        command += ["--threads", str(args.threads)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return next(line["validation_loss"] for line in reversed(lines) if "validation_loss" in line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--program", default="build/release/spillway")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    args = parser.parse_args()
    folder = pathlib.Path("build/convergence")
    exact = {}
    print(f"validation loss of gpt2-tiny after {args.steps} steps of 16 x 64 tokens, {args.seeds} seeds\n")
    print("| numbers | mean | spread over seeds | difference from exact, mean ± standard error |\n| --- | --- | --- | --- |", flush=True)
    for name in ["exact"] + [n for n in args.only if n != "exact"]:
        losses = {seed: final_validation_loss(args, VARIANTS[name], seed, folder) for seed in range(args.seeds)}
        if name == "exact":
            exact = losses
        differences = [losses[s] - exact[s] for s in losses]
        error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else float("nan")
        spread = statistics.stdev(losses.values()) if len(losses) > 1 else float("nan")
        difference = "" if name == "exact" else f"{statistics.mean(differences):+.4f} ± {error:.4f}"
        print(f"| {name} | {statistics.mean(losses.values()):.4f} | {spread:.4f} | {difference} |", flush=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
