#!/usr/bin/env python3
"""A run's event files as TensorBoard reads them, beside metrics.jsonl.

  python tests/peers/tensorboard_reads.py runs/x

Needs tensorboard (pip install tensorboard). Lists the scalars with their number of points and the texts; every number of metrics.jsonl must
be there at its step, as a float32, once, and no other step. Exit status 1 where that does not hold.
"""

import json
import math
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

GROUPS = {"tier_bytes": "memory/{}_bytes", "peak_bytes": "memory/peak_{}_bytes", "read_bytes": "bytes/read_{}",
          "written_bytes": "bytes/written_{}", "phase_ms": "phase_ms/{}"}
TAGS = {"loss": "loss", "grad_norm": "grad_norm", "lr": "learning_rate", "validation_loss": "validation/loss",
        "validation_accuracy": "validation/accuracy", "tokens": "speed/tokens", "samples": "speed/samples",
        "tokens_per_s": "speed/tokens_per_s", "samples_per_s": "speed/samples_per_s", "step_ms": "speed/step_ms",
        "predicted_ms": "speed/predicted_ms", "flops_per_s": "speed/flops_per_s", "loss_scale": "update/loss_scale",
        "skipped": "update/skipped", "clipped": "update/clipped", "redo": "update/redo"}


def expected(row):
    for key, tag in TAGS.items():
        if key in row:
            yield tag, math.nan if row[key] is None else float(row[key])
    for key, tag in GROUPS.items():
        for name, value in row.get(key, {}).items():
            yield tag.format(name), float(value)


def same(read, value):
    if not math.isfinite(value):
        return not math.isfinite(read)
    return read == struct.unpack("f", struct.pack("f", value))[0]


run = pathlib.Path(sys.argv[1])
rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
events = EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
points = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
wanted = {}
for row in rows:
    for tag, value in expected(row):
        wanted.setdefault(tag, []).append((row["step"], value))

wrong = 0
for tag in sorted(wanted.keys() | points.keys()):
    read = points.get(tag, [])
    if tag not in wanted:  # of another key, such as exchanged_bytes
        print(f"{tag}: {len(read)} points, not compared")
        continue
    held = [step for step, _ in read] == [step for step, _ in wanted[tag]] and all(
        same(a, b) for (_, a), (_, b) in zip(read, wanted[tag]))
    wrong += not held
    print(f"{tag}: {len(read)} points{'' if held else ', WRONG: metrics.jsonl has ' + str(wanted[tag][:5])}")
for tag in events.Tags()["tensors"]:
    print(f"{tag}: texts of steps {[e.step for e in events.Tensors(tag)]}")
print(f"{len(wanted)} scalars compared at {len(rows)} steps, {wrong} wrong")
sys.exit(1 if wrong or not rows else 0)
