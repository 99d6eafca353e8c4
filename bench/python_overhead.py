#!/usr/bin/env python3
"""What a step costs more by the Python module than by the program: the same run of gpt2-tiny on the CPU, by both in turn.

  PYTHONPATH=build/release/python bench/python_overhead.py [--steps N] [--rounds N] [--batch ROWS] [--length TOKENS]

Of each step two figures: step_ms (metrics.jsonl), and the time on the clock from the step before (the run's own event file), which has all that
comes between steps too: the callback and the way through Python. What is between is the second less the first; it is microseconds, and what
another process takes from a step does not show in it. Of all steps of all rounds the median and the fastest tenth are printed; on a
machine that does other things only the latter say something. The numbers of both runs must be the same.
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


def clock(run: pathlib.Path) -> dict[int, float]:
    """When each step's numbers were written, in seconds."""
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
    return times


def figures(run: pathlib.Path) -> tuple[dict[str, list[float]], list[float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    times = clock(run)
    taken = lines[10:-1]  # not while it warms up, nor the last, before which it validates
    of = {"step_ms": [line["step_ms"] for line in taken], "clock_ms": [1e3 * (times[line["step"]] - times[line["step"] - 1]) for line in taken]}
    of["between_ms"] = [c - s for c, s in zip(of["clock_ms"], of["step_ms"])]
    return of, [line["loss"] for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128)
    asked = parser.parse_args()
    import spillway

    program = pathlib.Path(spillway.__file__).parent / "bin" / "spillway"
    taken: dict[str, dict[str, list[float]]] = {"program": {}, "Python": {}}
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
            both = {"program": figures(theirs), "Python": figures(mine)}
            assert both["program"][1] == both["Python"][1], "the losses differ"
            for who, (figure, _) in both.items():
                for name, values in figure.items():
                    taken[who].setdefault(name, []).extend(values)
    for name in ["step_ms", "clock_ms", "between_ms"]:
        for what, of in [("median", statistics.median), ("fastest tenth", lambda values: statistics.quantiles(values, n=10)[0])]:
            program_ms, python_ms = of(taken["program"][name]), of(taken["Python"][name])
            more = f"{python_ms - program_ms:+.3f} ms" if name == "between_ms" else f"{100 * (python_ms / program_ms - 1):+.2f} %"
            print(f"{name:11} {what:14} program {program_ms:8.3f}  Python {python_ms:8.3f}  {more}")


if __name__ == "__main__":
    main()
