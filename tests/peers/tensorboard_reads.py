#!/usr/bin/env python3
"""A run's event files as TensorBoard reads them, beside metrics.jsonl and checkpoints.

  python tests/peers/tensorboard_reads.py runs/x

Needs tensorboard (pip install tensorboard), which brings numpy. Lists the scalars with their number of points, the texts and the histograms.
Every number of metrics.jsonl must be there at its step, as a float32, once, and no other step. A histogram's `num` must be what its buckets
have together; where there is a checkpoint of its step, all of it must be what numpy makes of the tensor's values between the same limits.
Exit status 1 where that does not hold.
"""

import json
import math
import pathlib
import struct
import sys

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

GROUPS = {"tier_bytes": "memory/{}_bytes", "peak_bytes": "memory/peak_{}_bytes", "read_bytes": "bytes/read_{}",
          "written_bytes": "bytes/written_{}", "phase_ms": "phase_ms/{}"}
TAGS = {"loss": "loss", "grad_norm": "grad_norm", "lr": "learning_rate", "validation_loss": "validation/loss",
        "validation_accuracy": "validation/accuracy", "tokens": "speed/tokens", "positions": "speed/positions",
        "positions_per_s": "speed/positions_per_s", "samples": "speed/samples",
        "tokens_per_s": "speed/tokens_per_s", "samples_per_s": "speed/samples_per_s", "step_ms": "speed/step_ms",
        "predicted_ms": "speed/predicted_ms", "flops_per_s": "speed/flops_per_s", "loss_scale": "update/loss_scale",
        "skipped": "update/skipped", "clipped": "update/clipped", "redo": "update/redo"}
WEIGHTS, PEFT = "weights/", "base_model.model."


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


def compare_scalars(events, rows):
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
    print(f"{len(wanted)} scalars compared at {len(rows)} steps, {wrong} wrong")
    return wrong


def tensors_of(file):
    data = np.memmap(file, np.uint8, "r")
    begin = 8 + int(data[:8].view("<u8")[0])
    for name, info in json.loads(data[8:begin].tobytes()).items():
        if name == "__metadata__":
            continue
        first, last = info["data_offsets"]
        raw = data[begin + first:begin + last].tobytes()
        if info["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[info["dtype"]])
        yield name.removeprefix(PEFT), values.astype(np.float64)


def is_of(histogram, values):
    values = values[np.isfinite(values)]
    limits, counts = np.array(histogram.bucket_limit), np.array(histogram.bucket)
    buckets = np.searchsorted(limits, values, side="right")
    ends = (values.min(), values.max()) if values.size else (0, 0)
    error = 2.0**-52 * (values.size + 510)  # of this and of that sum
    return (histogram.num == values.size and buckets.max(initial=0) < limits.size and (histogram.min, histogram.max) == ends
            and np.array_equal(np.bincount(buckets, minlength=limits.size), counts)
            and abs(histogram.sum - values.sum()) <= error * np.abs(values).sum()
            and abs(histogram.sum_squares - (values**2).sum()) <= error * (values**2).sum())


def compare_histograms(events, run):
    read, wrong, counted = {}, 0, 0
    for tag in events.Tags()["histograms"]:
        for event in events.Histograms(tag):
            histogram = read.setdefault(event.step, {})[tag] = event.histogram_value
            wrong += histogram.num != sum(histogram.bucket)
    for step, histograms in sorted(read.items()):
        total = int(sum(h.num for h in histograms.values()))
        folder = run / f"checkpoints/step-{step:08}"
        file = next((f for f in (folder / "adapter_model.safetensors", folder / "model.safetensors") if f.exists()), None)
        if file is None:
            print(f"histograms of step {step}: {len(histograms)} of {total} values, without a checkpoint to compare with")
            continue
        tensors = dict(tensors_of(file))
        bad = [tag for tag, h in histograms.items()
               if tag.removeprefix(WEIGHTS) not in tensors or not is_of(h, tensors[tag.removeprefix(WEIGHTS)])]
        frozen = [name for name in tensors if WEIGHTS + name not in histograms]
        wrong, counted = wrong + len(bad), counted + len(histograms)
        print(f"histograms of step {step}: {len(histograms)} of {total} values compared with {file.name}, none of {len(frozen)} other tensors"
              + (f", WRONG: {bad[:5]}" if bad else ""))
    print(f"histograms of {len(read)} steps, {counted} compared with checkpoints, {wrong} wrong")
    return wrong


run = pathlib.Path(sys.argv[1])
rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
events = EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0, "histograms": 0})
events.Reload()
wrong = compare_scalars(events, rows)
for tag in events.Tags()["tensors"]:
    print(f"{tag}: texts of steps {[e.step for e in events.Tensors(tag)]}")
wrong += compare_histograms(events, run)
sys.exit(1 if wrong or not rows else 0)
