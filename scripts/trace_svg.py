#!/usr/bin/env python3
"""Draws a trace of `spillway train --trace FILE` as an SVG: a lane each for compute, optimizer, loads, stores, disk reads and disk writes.

usage: scripts/trace_svg.py TRACE.json > picture.svg
"""
import json
import sys

LANES = ["compute", "optimizer", "load", "store", "disk read", "disk write"]
COLOURS = [("Forward", "#4c9be8"), ("Backward", "#2463b4"), ("Step", "#e8912d"), ("Fetch", "#3f9d6b"), ("Evict", "#8f6cc9"),
           ("read", "#3f9d6b"), ("write", "#c4504f")]
LEFT, TOP, WIDTH, LANE, GAP = 84, 26, 900, 22, 6


def colour(name):
    return next((c for prefix, c in COLOURS if name.startswith(prefix)), None)


def rectangles(events, scale):
    """[begin, end, colour] in pixels; neighbours of a colour closer than half a pixel become one."""
    merged = []
    for begin, end, c in sorted((e["ts"] * scale, (e["ts"] + e["dur"]) * scale, colour(e["name"])) for e in events if colour(e["name"])):
        if merged and merged[-1][2] == c and begin - merged[-1][1] < 0.5:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end, c])
    return merged


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    trace = json.load(open(sys.argv[1]))
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    work = [e for e in events if e["ph"] == "X"]
    start = min(e["ts"] for e in work)
    for e in work:
        e["ts"] -= start
    seconds = max(e["ts"] + e["dur"] for e in work) / 1e6
    scale = WIDTH / (seconds * 1e6)
    height = TOP + len(LANES) * (LANE + GAP) + 44
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 16} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{LEFT + WIDTH + 16}" height="{height}" fill="#fff"/>']
    for row, lane in enumerate(LANES):
        y = TOP + row * (LANE + GAP)
        out.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end" fill="#333">{lane}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{LANE}" fill="#f2f2f2"/>')
        for begin, end, c in rectangles([e for e in work if names.get(e["tid"]) == lane], scale):
            out.append(f'<rect x="{LEFT + begin:.1f}" y="{y}" width="{max(end - begin, 0.4):.1f}" height="{LANE}" fill="{c}"/>')
    bottom = TOP + len(LANES) * (LANE + GAP)
    tick = next(t for t in (0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 600, 6000) if seconds / t <= 12)
    for i in range(int(seconds / tick) + 1):
        x = LEFT + i * tick * 1e6 * scale
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{bottom}" stroke="#999" stroke-width="0.5"/>')
        out.append(f'<text x="{x:.1f}" y="{TOP - 10}" text-anchor="middle" fill="#333">{i * tick:g} s</text>')
    legend = [("forward", "#4c9be8"), ("backward", "#2463b4"), ("optimizer", "#e8912d"), ("to the device, from disk", "#3f9d6b"),
              ("gradients away", "#8f6cc9"), ("to disk", "#c4504f")]
    x = LEFT
    for text, c in legend:
        out.append(f'<rect x="{x}" y="{bottom + 14}" width="12" height="12" fill="{c}"/>')
        out.append(f'<text x="{x + 17}" y="{bottom + 24}" fill="#333">{text}</text>')
        x += 36 + 7 * len(text)
    out.append("</svg>")
    print("\n".join(out))


if __name__ == "__main__":
    main()
