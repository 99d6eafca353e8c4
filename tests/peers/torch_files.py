"""Writes what tests/data/weights/torch_file_test.cc reads, with PyTorch: state.bin, whose tensors are of every kind that torch.save knows how to keep
(views, shared storages, parameters, dictionaries in dictionaries), what they hold as fp64 in state.json, and asks.bin, which would run a
command if it were unpickled.

    python tests/peers/torch_files.py tests/data/torch
"""
import collections
import json
import os
import sys

import torch

folder = sys.argv[1]
base = torch.arange(24, dtype=torch.float32) * 0.5 - 3
state = collections.OrderedDict()
state["plain"] = base.reshape(4, 6).clone()
state["transposed"] = base.reshape(4, 6).t()
state["from_the_middle"] = base[5:17].reshape(3, 4)
state["every_second"] = base[::2]
state["expanded"] = torch.tensor([1.5, -2.5]).expand(3, 2)
state["parameter"] = torch.nn.Parameter(torch.tensor([[0.25, 4.0]]))
state["scalar"] = torch.tensor(7.5)
state["empty"] = torch.zeros(0, 3)
state["f64"] = torch.tensor([1e-300, 0.1], dtype=torch.float64)
state["bf16"] = torch.tensor([1.0, -3.0, float("inf")], dtype=torch.bfloat16)
state["f16"] = torch.tensor([1.0, 6e-8, -65504.0], dtype=torch.float16)
state["of_integers"] = torch.tensor([1, 2, 3])
state["of_bytes"] = torch.tensor([1, -2, 3], dtype=torch.int8)
state["inner"] = {"weight": torch.full((2, 2), 9.0), "steps": 4, "name": "x"}
state["big"] = torch.arange(9000, dtype=torch.float32).reshape(90, 100).t()  # more than one piece
torch.save(state, os.path.join(folder, "state.bin"))


def numbers(tensor):
    return [str(x) if x != x or abs(x) == float("inf") else x for x in tensor.double().flatten().tolist()]


held = {}
for name, value in [(k, v) for k, v in state.items() if k != "inner"] + [("inner.weight", state["inner"]["weight"])]:
    held[name] = {"shape": list(value.shape), "dtype": str(value.dtype).split(".")[1]}
    if name != "big":
        held[name]["values"] = numbers(value)
with open(os.path.join(folder, "state.json"), "w") as file:
    json.dump(held, file, indent=1)


class Asks:
    def __reduce__(self):
        return os.system, ("touch asked",)


torch.save({"weight": torch.zeros(2), "more": Asks()}, os.path.join(folder, "asks.bin"))
torch.save({"weight": torch.zeros(2)}, os.path.join(folder, "old.bin"), _use_new_zipfile_serialization=False)
