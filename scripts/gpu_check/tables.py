#!/usr/bin/env python3
"""Tables of gpu_check.sh, from what NVIDIA's tools and the benches left. Each command prints Markdown and ends with 0, or says on one line
what is wrong with the file and ends with 1: nothing measured is no table.

  tables.py clocks FILE FROM TO      samples FROM + 1 to TO of nvidia-smi's (-1: all): "1755 MHz | 612 W, at most 640 | notes"
  tables.py bench FILE               JSON of Google Benchmark
  tables.py kernels FILE STEPS       what kernel_times.cc wrote: the GPU's time by NVTX range and kernel, of a step, and how busy it was
  tables.py peers FILE                  what gpu_peers.py said
  tables.py ncu FILE                 ncu's CSV (--page raw --print-units base): the GPU's time by kernel
"""
import collections
import csv
import json
import math
import re
import statistics
import sys

MOST_ROWS = 40
# Bits of clocks_event_reasons.active that hold a clock down: nvmlClocksEventReasons of NVIDIA's NVML documentation.
HELD_BY = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "heat (software)", 0x40: "heat (hardware)", 0x80: "power brake"}
NOT_COUNTERS = {"name", "run_name", "run_type", "family_index", "per_family_instance_index", "repetitions", "repetition_index", "threads",
                "iterations", "real_time", "cpu_time", "time_unit", "label"}


class Wrong(Exception):
    pass


def number(text):
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def table(head, rows):
    """The first column is text, the others are numbers."""
    print("| " + " | ".join(head) + " |\n|---|" + "--:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |")


def short(kernel):
    """A kernel's name without its result, namespaces, arguments and most of its template's."""
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::|spillway::", "", kernel)
    name = re.sub(r"^void ", "", name)
    name = name[:name.rindex("(")] if name.endswith(")") and "(" in name else name
    return name if len(name) <= 90 else name[:87] + "..."


def clocks(path, begin, end):
    """Lines "time, SM MHz, memory MHz, W, degrees, reasons": what was true while a step ran."""
    with open(path) as file:
        lines = file.read().splitlines()[begin:end if end >= 0 else None]
    mhz, watts, reasons, bad = [], [], 0, 0
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        try:
            mhz.append(number(cells[1]))
            watts.append(number(cells[3]))
            if len(cells) > 5:
                reasons |= int(cells[5], 16)
        except (ValueError, IndexError):
            bad += 1
    if not mhz or len(watts) != len(mhz) or 2 * bad > len(lines):
        raise Wrong(f"{len(lines)} samples, {bad} of them no clocks and watts" + (f": {lines[-1][:80]}" if bad else ""))
    held = ", ".join(what for bit, what in HELD_BY.items() if reasons & bit)
    power = f"{statistics.mean(watts):.0f} W, at most {max(watts):.0f}"
    print(f"{statistics.median(mhz):.0f} MHz | {power}" + (f", held by {held}" if held else ""))


def bench(path):
    """Every counter of every row; times in microseconds."""
    with open(path) as file:
        given = json.load(file)
    rows, counters = [], []
    for row in given["benchmarks"]:
        if row.get("error_occurred"):
            raise Wrong(f"{row['name']}: {row.get('error_message', 'failed')}")
        if not number(row["real_time"]) > 0:
            raise Wrong(f"{row['name']} took {row['real_time']}")
        counters += [key for key in row if key not in NOT_COUNTERS and key not in counters]
        rows.append(row)
    if not rows:
        raise Wrong("it measured nothing")
    shown = []
    for row in rows:
        name = re.sub(r"/iterations:\d+|/manual_time", "", row["name"])
        cells = [f"{number(row[key]):.4g}" if key in row else "" for key in counters]
        shown.append([name, f"{row['real_time']:.1f} {row['time_unit']}"] + cells)
    table(["bench", "time"] + counters, shown)


def united(spans):
    """Nanoseconds that lie in at least one of them."""
    whole, until = 0, -math.inf
    for begin, end in sorted(spans):
        whole += max(0, end - max(begin, until))
        until = max(until, end)
    return whole


def kernels(path, steps):
    """A kernel belongs to the innermost range of ours open on the thread that launched it; ranges of one kind are one: "Forward 3" is
    Forward. NVIDIA's libraries have ranges too, whose names look otherwise: ncclAllGather. A step is a share of the whole run, with its
    start."""
    ranges, found, copies = collections.defaultdict(list), [], collections.defaultdict(list)
    with open(path) as file:
        for line in file:
            kind, *cells = line.rstrip("\n").split("\t")
            if kind == "problem":
                raise Wrong("problem: " + cells[0])
            if kind == "range" and re.fullmatch(r"[A-Z]\w*( \d+)?", cells[3]):
                ranges[int(cells[2])].append((int(cells[0]), int(cells[1]), cells[3]))
            elif kind == "kernel":
                found.append((int(cells[2]), int(cells[3]), int(cells[0]), int(cells[1]), short(cells[4])))
            elif kind == "copy":
                copies[cells[3]].append((int(cells[0]), int(cells[1]), int(cells[2])))
    if not found:
        raise Wrong("no kernel was recorded")
    for of_thread in ranges.values():
        of_thread.sort(key=lambda one: (one[0], -one[1]))

    open_ranges = {}  # of a thread: how far its ranges were looked at, and those open there; launches are taken in order
    sums, count, outside = collections.Counter(), collections.Counter(), 0
    for thread, at, begin, end, name in sorted(found):
        next_range, stack = open_ranges.setdefault(thread, [0, []])
        of_thread = ranges.get(thread, [])
        while next_range < len(of_thread) and of_thread[next_range][0] <= at:
            stack.append(of_thread[next_range])
            next_range += 1
        open_ranges[thread][0] = next_range
        while stack and stack[-1][1] < at:
            stack.pop()
        kind = re.sub(r" \d+$", "", stack[-1][2]) if stack else "outside"
        outside += not stack
        sums[kind, name] += end - begin
        count[kind, name] += 1
    whole, by_kind = sum(sums.values()), collections.Counter()
    for (kind, _), ns in sums.items():
        by_kind[kind] += ns
    table(["range", "ms a step", "share"],
          [[kind, f"{ns / steps / 1e6:.3f}", f"{100 * ns / whole:.1f} %"] for kind, ns in by_kind.most_common()])
    print()
    table(["range: kernel", "ms a step", "share", "launches a step", "us each"],
          [[f"{kind}: {name}", f"{ns / steps / 1e6:.3f}", f"{100 * ns / whole:.1f} %", f"{count[kind, name] / steps:g}",
            f"{ns / count[kind, name] / 1e3:.1f}"] for (kind, name), ns in sums.most_common(MOST_ROWS)])
    if copies:
        print()
        table(["copies", "MiB a step", "GB/s", "ms a step"],
              [[kind, f"{sum(c[2] for c in of_kind) / steps / 2**20:.1f}",
                f"{sum(c[2] for c in of_kind) / max(1, united([c[:2] for c in of_kind])):.1f}",
                f"{united([c[:2] for c in of_kind]) / steps / 1e6:.3f}"] for kind, of_kind in copies.items()])
    rest = sum(ns for _, ns in sums.most_common()[MOST_ROWS:])
    busy, copied = [one[2:4] for one in found], [c[:2] for of_kind in copies.values() for c in of_kind]
    span = max(end for _, end in busy + copied) - min(begin for begin, _ in busy + copied)
    both = united(busy) + united(copied) - united(busy + copied)
    print(f"\n{whole / steps / 1e6:.3f} ms a step in {len(found) / steps:g} kernels, {outside} of all outside of any range; "
          f"{rest / steps / 1e6:.3f} ms of rows not shown; from first to last {span / 1e9:.3f} s, of which kernels ran "
          f"{100 * united(busy) / span:.1f} %, copies {100 * united(copied) / span:.1f} %, both at once {100 * both / span:.1f} %.")


def ncu(path):
    """Launches of one name are one row: times are added, the rest are means weighted with time."""
    with open(path) as file:
        lines = [line for line in file if not line.startswith("==")]
    rows = list(csv.DictReader(lines))
    time = "gpu__time_duration.sum"
    if len(rows) < 2 or time not in rows[0]:
        raise Wrong("no kernel was measured" + (f": {lines[0].strip()[:120]}" if lines else ""))
    units, rows = rows[0], rows[1:]
    scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1}.get(units[time])
    if scale is None:
        raise Wrong(f"times in '{units[time]}'")
    metrics = [key for key in rows[0] if "__" in key and key != time]
    us, count = collections.Counter(), collections.Counter()
    weighted = collections.defaultdict(collections.Counter)
    for row in rows:
        name, this_us = short(row["Kernel Name"]), number(row[time].replace(",", "")) * scale
        us[name] += this_us
        count[name] += 1
        for key in metrics:
            try:
                weighted[key][name] += number(row[key].replace(",", "")) * this_us
            except (ValueError, AttributeError):
                weighted[key][name] += math.nan
    whole = sum(us.values())
    if not whole > 0:
        raise Wrong("no kernel took any time")
    heads = [f"{key} {'' if units[key] in ('', None) else '(' + units[key] + ')'}".strip() for key in metrics]
    shown = []
    for name, one in us.most_common():
        means = ["" if math.isnan(weighted[key][name]) else f"{weighted[key][name] / one:.4g}" for key in metrics]
        shown.append([name, f"{one:.1f}", f"{100 * one / whole:.1f} %", count[name]] + means)
    table(["kernel", "us", "share", "launches"] + heads, shown)
    print(f"\n{whole:.1f} us in {len(rows)} launches.")


def tflops(row):
    return f"{number(row['tflops']):.1f}" if "tflops" in row else ""


def peers(path):
    rows = []
    with open(path) as file:
        for line in file:
            if line.startswith('{"what"'):
                rows.append(json.loads(line))
    trained = [row for row in rows if row["what"] == "training" and "tokens_per_s" in row]
    attended = [row for row in rows if row["what"] == "attention" and "ms" in row]
    if not trained and not attended:
        raise Wrong("nothing was measured")
    if trained:
        table(["training", "tokens/s", "TFLOP/s", "ms a step", "steps"],
              [[f"{row['model']}, {row['who']}", f"{number(row['tokens_per_s']):.0f}", tflops(row),
                f"{number(row['step_ms']):.2f}", row["steps"]] for row in trained])
        print()
    if attended:
        table(["attention", "ms", "TFLOP/s", "its time over ours"],
              [[f"{row['shape']}, {row['who']}", f"{number(row['ms']):.4f}", tflops(row),
                f"{number(row['over_ours']):.3f}" if "over_ours" in row else ""] for row in attended])
    for row in rows:
        if "failed" in row or "unavailable" in row or row["what"] == "note":
            print("\n" + ", ".join(f"{key}: {value}" for key, value in row.items()))


def main():
    commands = {"clocks": (clocks, str, int, int), "bench": (bench, str), "kernels": (kernels, str, int), "ncu": (ncu, str),
                "peers": (peers, str)}
    name, given = sys.argv[1], sys.argv[2:]
    run, *types = commands[name]
    try:
        run(*(convert(text) for convert, text in zip(types, given)))
    except (Wrong, OSError, ValueError, KeyError, TypeError, csv.Error) as reason:
        print(f"{name}: {type(reason).__name__ + ': ' if not isinstance(reason, Wrong) else ''}{reason}")
        return 1
    return 0


sys.exit(main())
