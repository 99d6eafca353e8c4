#!/usr/bin/env python3
"""bench/gpu_peers.py without PyTorch: all is its own but what PyTorch would measure, and the sizes, which are an emulated GPU's. Its
allocator "keeps" memory after each step of its own, and no program of ours is run before that is given back."""
import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path

here = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("peers", here / "real_gpu_peers.py")
peers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peers)

kept = []
cuda = types.SimpleNamespace(is_available=lambda: True, empty_cache=kept.clear, get_device_name=lambda: "planted")
torch = types.SimpleNamespace(cuda=cuda, __version__="planted", version=types.SimpleNamespace(cuda="13"),
                              backends=types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 91900)),
                              set_float32_matmul_precision=lambda _: None)
if os.environ.get("FAULT_PEERS") != "no torch":
    sys.modules["torch"] = torch
else:
    sys.modules["torch"] = None


class Planted:
    who, compiled = "PyTorch, planted", True

    def __init__(self, *_):
        pass

    def steps(self, count):
        kept.append("activations")
        return [0.020] * count


def attention(_):
    kept.append("scores")
    passes = [f"{shape}/{which}" for shape in peers.ATTENTION for which in ("forward", "gradients")]
    measured = {"FlashAttention-2": dict.fromkeys(passes, 0.095), "cuDNN": dict.fromkeys(passes, 0.060)}
    if os.environ.get("FAULT_PEERS") == "no cuDNN":
        measured["cuDNN"] = {}
    return measured


class Ours(peers.Ours):
    def __init__(self, given, _, rows, positions):
        super().__init__(given, str(Path(given.folder) / "llama-1.5b"), rows, positions)


run = subprocess.run


def run_ours(*given, **named):
    if kept:
        raise RuntimeError("PyTorch's allocator keeps memory while ours is run")
    return run(*given, **named)


peers.subprocess.run = run_ours
peers.Torch, peers.Ours, peers.attention, peers.models = Planted, Ours, attention, lambda _: (None, None)
peers.LLAMA_CONFIG.update(hidden_size=32, head_dim=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1,
                          num_key_value_heads=1, vocab_size=256)
peers.SIZES = dict.fromkeys(peers.SIZES, (2, 16))
peers.WARM_STEPS, peers.STEPS = 1, 1
sys.exit(peers.main())
