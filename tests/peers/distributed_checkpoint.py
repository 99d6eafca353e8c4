"""Writes what tests/data/weights/distributed_checkpoint_test.cc reads: a torch.distributed.checkpoint of two ranks, whose tensors are cut along the
first axis, along another, unevenly, and not at all, beside an optimizer's and a number, and as fp64 in expected.json.

    python tests/peers/distributed_checkpoint.py tests/data/torch/distributed
"""
import json
import os
import shutil
import socket
import subprocess
import sys


def tensors():
    import torch

    def count(*shape):
        n = 1
        for axis in shape:
            n *= axis
        return torch.arange(n, dtype=torch.float32).reshape(shape) * 0.25 - 3

    return {
        "rows.weight": (count(7, 3), 0),
        "columns.weight": (count(4, 6), 1),
        "middle.weight": (count(3, 5, 2), 1),
        "few.bias": (count(1), 0),
        "whole.weight": (count(2, 3).bfloat16(), None),
        "half.weight": (count(5, 4).half(), 0),
        "counted": (torch.arange(6), 0),
    }


def work(folder):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    model = {name: distribute_tensor(t, mesh, [Replicate() if axis is None else Shard(axis)]) for name, (t, axis) in tensors().items()}
    state = {"rows.weight": {"exp_avg": model["rows.weight"] * 2, "step": 3}}
    dcp.save({"model": model, "optimizer": {"state": state}, "step": 3}, checkpoint_id=folder)
    if dist.get_rank() == 0:
        expected = {name: {"shape": list(t.shape), "values": t.double().flatten().tolist()} for name, (t, _) in tensors().items()}
        with open(os.path.join(folder, "expected.json"), "w") as file:
            json.dump(expected, file)


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = [subprocess.Popen([sys.executable, __file__, "--work", folder],
                                env={**os.environ, "RANK": str(r), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
               for r in range(2)]
    assert all([w.wait() == 0 for w in workers])


if __name__ == "__main__":
    work(sys.argv[2]) if sys.argv[1] == "--work" else main(sys.argv[1])
