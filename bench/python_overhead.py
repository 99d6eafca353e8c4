#!/usr/bin/env python3
"""What a step costs more by the Python module than by the program: the same run of gpt2-tiny on the CPU, by both in turn.

  PYTHONPATH=build/release/python bench/python_overhead.py [--steps N] [--rounds N] [--batch ROWS] [--length TOKENS]

Of each run two figures: the median of step_ms (metrics.jsonl), and the time on the clock between two steps (the run's own event file), which
has all that comes between steps too: the callback and the way through Python. Printed are medians over the rounds and the ratio of each
round's pair. The numbers of both runs must be the same.
"""

import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

IN_PYTHON = """
import sys, spillway
heard = []
spillway.Trainer(**eval(sys.argv[1])).train(on_step=lambda event: heard.append((event.step, event.loss)), log=lambda line: None)
"""


def clock(run: pathlib.Path) -> float:
    """Milliseconds on the clock between two steps, over all but the first few."""
    (file,) = run.glob("events.out.tfevents.*")
    data, at, times = file.read_bytes(), 0, {}
    while at + 16 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        record = data[at + 12 : at + 12 + length]
        at += 16 + length
        if record[:1] != b"\x09" or record[9:10] != b"\x10":  # Event.wall_time, Event.step
            continue
        step = shift = 0
        for byte in record[10:]:
            step |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        times.setdefault(step, struct.unpack_from("<d", record, 1)[0])
    first, last = 10, max(times)
    return (times[last] - times[first]) / (last - first) * 1e3


def figures(run: pathlib.Path) -> tuple[float, float, list[float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(line["step_ms"] for line in lines[10:]), clock(run), [line["loss"] for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128)
    asked = parser.parse_args()
    import spillway

    program = pathlib.Path(spillway.__file__).parent / "bin" / "spillway"
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        text = place / "text.txt"
        text.write_text("".join(f"{i % 50} bottles of milk on the wall, take one down.\n" for i in range(4000)))
        flags = dict(model="gpt2-tiny", data=str(text), sequence_length=asked.length, micro_batch_size=asked.batch, steps=asked.steps,
                     learning_rate=1e-3, device="cpu", device_memory="1GiB", validation_fraction=0.01)
        words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        for number in range(asked.rounds):
            mine, theirs = place / f"python-{number}", place / f"program-{number}"
            in_python = [sys.executable, "-c", IN_PYTHON, repr({**flags, "out": str(mine)})]
            in_program = [str(program), "train", *words, f"--out={theirs}"]
            for command in [in_program, in_python] if number % 2 else [in_python, in_program]:
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            of_python, of_program = figures(mine), figures(theirs)
            assert of_python[2] == of_program[2], "the losses differ"
            rows.append((of_python[:2], of_program[:2]))
    for index, what in enumerate(["step_ms", "clock"]):
        python, other = [[pair[side][index] for pair in rows] for side in (0, 1)]
        ratios = sorted(a / b for a, b in zip(python, other))
        print(f"{what:8} program {statistics.median(other):7.3f} ms, Python {statistics.median(python):7.3f} ms a step: "
              f"{100 * (statistics.median(ratios) - 1):+.2f} % ({', '.join(f'{100 * (each - 1):+.1f}' for each in ratios)})")


if __name__ == "__main__":
    main()
