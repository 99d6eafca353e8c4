"""What Python writes, killed at instants spread over the writing: as it was before, or whole. Long: label soak (tests/python.cmake)."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest

KILLS = 200

# For each function that writes files: code that prepares the call, and the call itself. Two seeds give different files, old and new.
DOORS = {
    "model": ("model = spillway.Model('gpt2-tiny', seed=seed)", "model.save(out)"),
    "optimizer": (
        "p = spillway.randn((500000,), seed=seed).requires_grad_(); sgd = spillway.SGD([p], momentum=0.9)\n(p * p).sum().backward(); sgd.step()",
        "sgd.save(out)",
    ),
    "tokens.bin": ("rows = [[seed] * 1000] * 2000", "spillway.write_tokens(out, rows)"),
    "rows.jsonl": ("rows = [{'input_ids': [seed] * 100}] * 2000", "spillway.write_rows(out, rows)"),
}
# The parent measures time from the word "ready", since a child spends most of its time before that on imports.
CHILD = "import sys, spillway\nout, seed = sys.argv[1], int(sys.argv[2])\n{}\nprint('ready', flush=True)\n{}\nprint('done', flush=True)\n"


def digest(path):
    total = hashlib.sha256()
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            total.update(file.name.encode() + (file.read_bytes() if file.is_file() else b""))
    elif path.exists():
        total.update(path.read_bytes())
    else:
        return None
    return total.hexdigest()


def start(door, out, seed):
    child = subprocess.Popen([sys.executable, "-c", CHILD.format(*DOORS[door]), str(out), str(seed)], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    return child


def finish(child):
    with child.stdout:
        said = child.stdout.read()
    return child.wait(), said


@pytest.mark.parametrize("door", DOORS)
def test_a_killed_writer_leaves_the_old_or_the_new(tmp_path, door):
    out, draw, killed, whole, times = tmp_path / door, random.Random(3), 0, {}, []
    for seed in (1, 2):
        child, begin = start(door, out, seed), time.monotonic()
        assert child.stdout.readline() == b"done\n"
        times.append(time.monotonic() - begin)
        assert finish(child) == (0, b"")
        whole[seed] = digest(out)
    seconds = min(times)
    assert whole[1] != whole[2]
    names = sorted(os.listdir(tmp_path))
    for number in range(KILLS):
        before, seed = digest(out), 1 + number % 2
        child = start(door, out, seed)
        time.sleep(draw.random() * seconds)
        child.send_signal(signal.SIGKILL)
        status, said = finish(child)
        killed += status == -signal.SIGKILL
        assert digest(out) == whole[seed] if said else digest(out) in (before, whole[seed])
    assert finish(start(door, out, 1)) == (0, b"done\n")
    assert digest(out) == whole[1]
    assert sorted(os.listdir(tmp_path)) == names  # files that killed processes left were removed
    print(f"{door}: {killed} of {KILLS} killed in {seconds * 1e3:.0f} ms of writing")
    assert killed >= KILLS / 4
