#!/usr/bin/env python3
"""The disk against its peers, in turn: our store's stream (bench/disk.cc), fio, and DeepSpeed's aio, each reading N MiB and writing N MiB
at once with O_DIRECT, in requests of 1 MiB, as many in flight as our ring of staging buffers holds. Prints medians over the rounds and our
share of the best peer's. A peer that is not installed is left out with its reason.

  bench/disk_peers.py --folder /scratch [--mib 2048] [--rounds 7] [--program build/release/bench/bench_disk] [--deepspeed-python PYTHON]
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

IN_FLIGHT = 12  # requests of 1 MiB each way: four chunks of 3 MiB are read ahead, up to seven written behind
UNAVAILABLE = "unavailable: "

# Runs in DeepSpeed's interpreter: a line on stdin is a round, a line on stdout its seconds. Two handles, one a direction, as in its swappers.
DEEPSPEED = r"""
import os, sys, time
os.environ["DS_ACCELERATOR"] = "cpu"
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
try:
    import torch
    from deepspeed.ops.op_builder import AsyncIOBuilder
    aio = AsyncIOBuilder().load(verbose=False)
except Exception as reason:
    print("unavailable: " + str(reason).splitlines()[0], file=out, flush=True)
    sys.exit()
source, target, mib, depth = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
part = min(256, mib) << 20
handles = [aio.aio_handle(1 << 20, depth, False, True, 1) for _ in range(2)]
buffers = [handles[0].new_cpu_locked_tensor(part, torch.empty(0, dtype=torch.uint8)) for _ in range(2)]
buffers[1].random_(0, 256)
print("ready", file=out, flush=True)
for line in sys.stdin:
    begin = time.monotonic()
    for at in range(0, mib << 20, part):
        handles[0].async_pread(buffers[0], source, at)
        handles[1].async_pwrite(buffers[1], target, at)
        for handle in handles:
            handle.wait()
    print(time.monotonic() - begin, file=out, flush=True)
"""


class Ours:
    def __init__(self, program, folder, mib, engine):
        self.command = [program, f"--benchmark_filter=state_tiles/{engine}/", "--benchmark_format=json"]
        self.environment = os.environ | {"SPILLWAY_BENCH_DISK": str(folder), "SPILLWAY_BENCH_DISK_MIB": str(mib)}

    def seconds(self):
        done = subprocess.run(self.command, env=self.environment, capture_output=True, text=True)
        row = json.loads(done.stdout)["benchmarks"][0]
        if row.get("error_occurred"):
            raise RuntimeError(row["error_message"])
        return row["real_time"] / 1e3


class Fio:
    def __init__(self, source, target, mib, engine):
        job = f"--size={mib}m --bs=1m --iodepth={IN_FLIGHT} --ioengine={engine} --direct=1 --fallocate=none"
        self.command = ["fio", "--output-format=json"]
        for name, way, file in (("reads", "read", source), ("writes", "write", target)):
            self.command += [f"--name={name}", f"--rw={way}", f"--filename={file}", *job.split()]
            if way == "write":
                self.command += ["--overwrite=1"]

    def seconds(self):
        done = subprocess.run(self.command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        jobs = json.loads(done.stdout[done.stdout.index("{"):])["jobs"]
        return max(job[way]["runtime"] for job, way in zip(jobs, ("read", "write"))) / 1e3


class DeepSpeed:
    def __init__(self, python, source, target, mib):
        self.process = subprocess.Popen([python, "-c", DEEPSPEED, source, target, str(mib), str(IN_FLIGHT)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        said = self.process.stdout.readline().strip()
        if said != "ready":
            raise RuntimeError(said.removeprefix(UNAVAILABLE) or "it does not start")

    def seconds(self):
        print(file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def write_file(path, mib):
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--folder", required=True)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--program", default=str(Path(__file__).parent.parent / "build/release/bench/bench_disk"))
    parser.add_argument("--deepspeed-python", default=sys.executable)
    given = parser.parse_args()
    folder = Path(given.folder) / f"spillway-disk-peers-{os.getpid()}"
    folder.mkdir()
    try:
        files = [str(folder / name) for name in ("source", "target")]
        for file in files:
            write_file(file, given.mib)
        makers = {"ours, io_uring": lambda: Ours(given.program, folder, given.mib, "io_uring"),
                  "ours, pread": lambda: Ours(given.program, folder, given.mib, "pread"),
                  "fio, io_uring": lambda: Fio(*files, given.mib, "io_uring"),
                  "fio, libaio": lambda: Fio(*files, given.mib, "libaio"),
                  "DeepSpeed's aio": lambda: DeepSpeed(given.deepspeed_python, *files, given.mib)}
        measure(makers, given)
    finally:
        shutil.rmtree(folder)


def measure(makers, given):
    contenders, rates = {}, {}
    for name, make in makers.items():
        try:
            contenders[name] = make()
            contenders[name].seconds()  # a first round that does not count
            rates[name] = []
        except (RuntimeError, OSError, ValueError) as reason:
            print(f"{name}: left out: {reason}")
    order = list(rates)
    for _ in range(given.rounds):
        order.append(order.pop(0))  # a drive that throttles after bursts favours a place in the row
        for name in order:
            rates[name].append(2 * given.mib / 1024 / contenders[name].seconds() * 1.073741824)
    medians = {name: statistics.median(of_name) for name, of_name in rates.items()}
    for name, of_name in rates.items():
        print(f"{name:16} {medians[name]:6.2f} GB/s, reads and writes together; rounds:", *(f"{rate:.2f}" for rate in of_name))
    peers = {name: rate for name, rate in medians.items() if not name.startswith("ours")}
    if peers and "ours, io_uring" in medians:
        best = max(peers, key=peers.get)
        print(f"ours is {100 * medians['ours, io_uring'] / peers[best]:.0f} % of the best peer ({best})")


main()
