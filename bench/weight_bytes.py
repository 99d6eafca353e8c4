#!/usr/bin/env python3
"""How fast weights are read and written: a folder of 2 GB of bf16 (a Llama of 1.07 billion parameters) is exported, as a folder and as GGUF,
and loaded, in turn with `cp` of its file and with a plain read of it into new memory. What is written is on stable storage before the clock
stops, by cp's copy too. Warm: the file lies in the page cache; cold: it was dropped from it. A table of medians comes last; the bits of the
exported file are compared.

  bench/weight_bytes.py --folder /scratch [--program build/release/spillway] [--module build/release/python] [--runs 5]
"""
import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HIDDEN, INNER, LAYERS, VOCABULARY = 2048, 8192, 14, 32000
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": INNER,
          "num_hidden_layers": LAYERS, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": VOCABULARY,
          "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
          "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
LOAD = ("import sys, time; sys.path.insert(0, sys.argv[2]); import spillway; begin = time.perf_counter(); "
        "model = spillway.Model(sys.argv[1], dtype='bf16'); print(time.perf_counter() - begin)")

# What any program must do to have the file in memory of its own: two threads read it into pages that the kernel has just cleared.
READ = """
import mmap, os, sys, threading, time
size = os.path.getsize(sys.argv[1])
begin = time.perf_counter()
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
view, middle = memoryview(memory), size // 2 // 4096 * 4096
def read(at, end):
    with open(sys.argv[1], "rb", buffering=0) as file:
        file.seek(at)
        while at < end:
            at += file.readinto(view[at : min(end, at + (1 << 24))])
other = threading.Thread(target=read, args=(middle, size))
other.start()
read(0, middle)
other.join()
print(time.perf_counter() - begin)
"""


def shapes():
    yield "model.embed_tokens.weight", [VOCABULARY, HIDDEN]
    for n in range(LAYERS):
        layer = f"model.layers.{n}."
        yield layer + "input_layernorm.weight", [HIDDEN]
        for name in "qkvo":
            yield layer + f"self_attn.{name}_proj.weight", [HIDDEN, HIDDEN]
        yield layer + "post_attention_layernorm.weight", [HIDDEN]
        yield layer + "mlp.gate_proj.weight", [INNER, HIDDEN]
        yield layer + "mlp.up_proj.weight", [INNER, HIDDEN]
        yield layer + "mlp.down_proj.weight", [HIDDEN, INNER]
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [VOCABULARY, HIDDEN]


def make(folder):
    """Bits at random, of numbers near a hundredth."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    header, at = {}, 0
    for name, shape in shapes():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    high = bytes((b & 0x80) | 0x3C for b in range(256))
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for begin in range(0, at, 1 << 22):
            block = bytearray(os.urandom(1 << 22))
            block[1::2] = block[1::2].translate(high)
            out.write(block[: at - begin])
        os.fsync(out.fileno())


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def timed(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def drop(file):
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def warm(file):
    with open(file, "rb", buffering=0) as data:
        while data.read(1 << 24):
            pass


def copy(source, to):
    run(["cp", source, to])
    descriptor = os.open(to, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def tensors(file):
    with open(file, "rb") as data:
        size = struct.unpack("<Q", data.read(8))[0]
        return 8 + size, {k: v for k, v in json.loads(data.read(size)).items() if k != "__metadata__"}


def same_bits(one, other):
    (begin, all_one), (other_begin, all_other) = tensors(one), tensors(other)
    assert all_one.keys() == all_other.keys()
    with open(one, "rb") as a, open(other, "rb") as b:
        for name, info in all_one.items():
            a.seek(begin + info["data_offsets"][0])
            b.seek(other_begin + all_other[name]["data_offsets"][0])
            size = info["data_offsets"][1] - info["data_offsets"][0]
            if a.read(size) != b.read(size):
                return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help="on the drive")
    parser.add_argument("--program", default="build/release/spillway")
    parser.add_argument("--module", default="build/release/python")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        scratch = Path(scratch)
        model = scratch / "model"
        make(model)
        weights, out = model / "model.safetensors", scratch / "out"
        actions = {
            "cp, synced": lambda: timed(lambda: copy(weights, out)),
            "export": lambda: timed(lambda: run([args.program, "export", model, "--out", out, "--quiet"])),
            "export --format gguf": lambda: timed(lambda: run([args.program, "export", model, "--out", out, "--quiet", "--format", "gguf"])),
            "cp to nowhere": lambda: timed(lambda: run(["cp", weights, "/dev/null"])),
            "read to memory": lambda: float(run([sys.executable, "-c", READ, weights])),
            "load": lambda: float(run([sys.executable, "-c", LOAD, model, args.module])),
        }
        times = {}
        for number in range(args.runs):
            for state, prepare in (("warm", warm), ("cold", drop)):
                for name, action in actions.items():
                    prepare(weights)
                    seconds = action()
                    times.setdefault((name, state), []).append(seconds)
                    print(f"run {number + 1}, {state}: {name} {seconds:.2f} s", flush=True)
                    if name == "export" and number == 0 and not same_bits(weights, out / "model.safetensors"):
                        sys.exit("the exported bits differ")
                    shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
        size = weights.stat().st_size / 1e9
        for (name, state), all_times in times.items():
            middle, copied = statistics.median(all_times), statistics.median(times["cp, synced", state])
            print(f"{name:22} {state}  {middle:6.2f} s  {size / middle:5.2f} GB/s  {100 * copied / middle:4.0f} % of cp's speed")


if __name__ == "__main__":
    main()
