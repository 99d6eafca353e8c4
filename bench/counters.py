#!/usr/bin/env python3
"""Prints what nvcc's kernels ask of a GPU, as Markdown, on a machine without one.

usage: bench/counters.py [BUILD]     (default: build/release)

The first table has counts of kernels of rows over their PTX (tests/ptx): sectors of 32 bytes that they move, in relation to those that their
bytes fill; instructions of a thread; repetitions of requests to shared memory. The second has registers, stack and shared memory of all
kernels that use stack, from cuobjdump.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release")
tools = pathlib.Path(__file__).resolve().parent.parent / "build/tools/nvidia/cu13/bin"
environment = os.environ | {"PATH": f"{os.environ['PATH']}:{tools}", "SPILLWAY_EMULATED_GPUS": "1", "SPILLWAY_TEST_SEPARATE_MEMORY": "1"}


def readable(mangled):
    """The kernel's name with its template arguments, without namespaces and parameters."""
    names = subprocess.run(["c++filt", *mangled], capture_output=True, text=True, check=True).stdout.splitlines()
    short = []
    for name in names:
        name = re.sub(r"\(anonymous namespace\)::|(spillway|kernels|cuda|optim)::|^void ", "", name)
        depth, end = 0, len(name)
        for at, letter in enumerate(name):
            depth += (letter == "<") - (letter == ">")
            if letter == "(" and depth == 0:
                end = at
                break
        short.append(name[:end])
    return short


def rows(program):
    with tempfile.NamedTemporaryFile("r") as file:
        subprocess.run([program], env=environment | {"SPILLWAY_PTX_COUNTERS": file.name}, stdout=subprocess.DEVNULL, check=True)
        fields = [line.split() for line in file]
    names = readable([words[1] for words in fields])
    return sorted((name, dict(zip(words[2::2], map(float, words[3::2])))) for name, words in zip(names, fields))


def used():
    """Kernel -> (registers, stack bytes, shared bytes), the most over the architectures."""
    most = collections.defaultdict(lambda: (0, 0, 0))
    for library in sorted(build.glob("libspillway_*.a")):
        text = subprocess.run(["cuobjdump", "--dump-resource-usage", library], env=environment, capture_output=True, text=True).stdout
        for name, registers, stack, shared in re.findall(r"Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", text):
            most[name] = tuple(map(max, most[name], (int(registers), int(stack), int(shared))))
    return most


print("| kernel | sectors to ideal | instructions of a thread | waves of a request to shared memory |\n|---|---|---|---|")
for name, c in rows(build / "tests/test_costs_ptx"):
    sectors = c["sectors_per_load"] * c["global_loads"] + c["sectors_per_store"] * c["global_stores"]
    ideal = (c["bytes_loaded"] + c["bytes_stored"]) / 32
    waves = f"{c['waves_per_request']:.2f}" if c["shared_requests"] else ""
    print(f"| `{name}` | {sectors / ideal:.2f} | {c['per_thread']:.0f} | {waves} |")

kernels = used()
stack = {name: use for name, use in kernels.items() if use[1] > 0}
print(f"\n{len(kernels)} kernels, {len(stack)} of them with a stack:\n\n| kernel | registers | bytes of stack | of shared memory |\n|---|---|---|---|")
for name, use in sorted(zip(readable(stack), stack.values())):
    print(f"| `{name}` | {use[0]} | {use[1]} | {use[2]} |")
