#!/usr/bin/env python3
"""Predicted against measured steps with a drive in them, and how much of the time the drive is busy: gpt2-124m in bf16 in three placements,
each once with clipping that never bites and once with clipping in every step. Everything is read from the audit at the end of
`spillway train --json`. Run it on a quiet machine; a table of medians comes last. Where cores rather than the drive bound the step of
(2, 256), fewer tokens make it the drive's: --batch 1 64.

  bench/drive_runs.py --folder /scratch [--program build/release/spillway] [--runs 10] [--steps 24] [--batch 2 256] [--only NAME ...]
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = ["--model", "gpt2-124m", "--precision", "bf16", "--device", "cpu"]
PLACEMENTS = {
    "optimizer": ["--device-memory", "600MiB", "--host-memory", "700MiB", "--place-optimizer", "nvme"],
    "weights and optimizer": ["--device-memory", "1GiB", "--host-memory", "800MiB", "--place-parameters", "nvme", "--place-optimizer", "nvme"],
    "everything": ["--device-memory", "700MiB", "--host-memory", "128MiB", "--place-parameters", "nvme", "--place-gradients", "nvme",
                   "--place-optimizer", "nvme"],
}
CLIPPING = {"rare": ["--gradient-clipping", "1e9"], "always": ["--gradient-clipping", "1e-3"]}


def run(args, place, clipping, folder):
    data, out = folder / "text.txt", folder / "run"
    rows, length = (str(n) for n in args.batch)
    command = [args.program, "train", *MODEL, "--micro-batch-size", rows, "--sequence-length", length, *PLACEMENTS[place], *CLIPPING[clipping], "--nvme", str(folder / "nvme"), "--data", str(data),
               "--steps", str(args.steps), "--checkpoint-every", "1000000", "--out", str(out), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    subprocess.run(["rm", "-rf", str(out), str(folder / "nvme")], check=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    audit = {row["what"]: row for row in json.loads(done.stdout.strip().splitlines()[-1])["audit"]}
    step, drive = audit["step"], audit["drive at work"]
    moved = sum(audit[what]["measured"] for what in ("read from nvme", "written to nvme") if what in audit)
    return {"predicted": step["predicted"], "measured": step["measured"], "busy": drive["measured"] / step["measured"],
            "expected": moved / drive["predicted"] / 1e9, "rate": moved / drive["measured"] / 1e9}


def line(name, r):
    off = 100 * (r["measured"] / r["predicted"] - 1)
    return (f"{name:40} predicted {r['predicted']:6.2f} s  measured {r['measured']:6.2f} s  {off:+5.0f} %   drive busy {100 * r['busy']:3.0f} %, "
            f"{r['rate']:.2f} GB/s of {r['expected']:.2f} expected")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help="on the drive")
    parser.add_argument("--program", default="build/release/spillway")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--batch", type=int, nargs=2, default=[2, 256], metavar=("ROWS", "LENGTH"))
    parser.add_argument("--only", nargs="*", default=list(PLACEMENTS), choices=list(PLACEMENTS))
    args = parser.parse_args()
    medians = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        folder = Path(folder)
        (folder / "text.txt").write_text("The drive reads and writes while the cores compute. " * 20000)
        for place in args.only:
            for clipping in CLIPPING:
                name, results = f"{place}, clipping {clipping}", []
                for number in range(args.runs):
                    results.append(run(args, place, clipping, folder))
                    print(line(f"{name} {number + 1}", results[-1]), flush=True)
                worst = max(abs(r["measured"] / r["predicted"] - 1) for r in results)
                median = {key: statistics.median(r[key] for r in results) for key in results[0]}
                medians.append(line(name, median) + f", farthest off {100 * worst:.0f} %")
    print("\nmedians of", args.runs, "runs")
    print("\n".join(medians))


if __name__ == "__main__":
    main()
