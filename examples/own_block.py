"""Lesson: a model of your own blocks in Python, trained with everything that `spillway train` has. It is examples/own_block.cc in Python,
and learns with the same bits. A model is a list or a dict of blocks; a block declares its parameters and computes its forward pass with
spillway's operations. It knows nothing of memory, ranks or schedules, so its weights, gradients and optimizer state may lie on the device, in
host memory or on nvme, on one rank or several. The two-layer network here learns exclusive or.

Usage: own_block.py [RUN [NVME [RANKS STAGES]]]: the run folder (the same one resumes the run), a scratch folder in which weights and
optimizer state then lie, and the number of ranks, which are threads of this process, and of pipeline stages.
"""

import pathlib
import shutil
import sys
import tempfile

import spillway as sp


class Hidden(sp.Block):
    """The first block. It reads the tensor [B, 2] that the data calls question."""

    def __init__(self):
        self.weight = sp.Parameter((8, 2), std=1)
        self.bias = sp.Parameter((8,), "zeros")

    def forward(self, x, batch):
        return sp.tanh(sp.linear(batch["question"], self.weight, self.bias))


class Answer(sp.Block):
    """The last block. It compares its result with the tensor [B, 1] that the data calls answer, and returns the loss of the batch."""

    def __init__(self):
        self.weight = sp.Parameter((1, 8), std=1)
        self.bias = sp.Parameter((1,), "zeros")

    def forward(self, x, batch):
        error = sp.linear(x, self.weight, self.bias) - batch["answer"]
        return batch.loss(error * error)


SAMPLES = [{"question": [float(i & 1), float(i >> 1)], "answer": [float((i & 1) != (i >> 1))]} for i in range(4)]


def trainer(run, nvme=None, ranks=1, stages=1, **more):
    if nvme:
        more.update(nvme=nvme, place_parameters="nvme", place_gradients="nvme", place_optimizer="nvme")
    if ranks > 1:
        more.update(ranks=ranks, pipeline_stages=stages, communicator="local")
    return sp.Trainer(model={"hidden": Hidden(), "answer": Answer()}, name="exclusive-or", data=SAMPLES, out=run, steps=200,
                      micro_batch_size=1, global_batch_size=4, learning_rate=0.05, weight_decay=0, precision="fp32", device="cpu", **more)


def show(event):
    if event.step % 40 == 0:
        print(f"step {event.step}  loss {event.loss:.6g}")


def main(run=None, nvme=None, ranks=1, stages=1):
    folder = pathlib.Path(tempfile.gettempdir()) / "spillway_example_own_block_py"
    if run is None:
        shutil.rmtree(folder, ignore_errors=True)
    result = trainer(run or folder, nvme, int(ranks), int(stages)).train(on_step=show, progress=False, log=lambda line: None)
    print("finished:" if result.finished else "stopped:", result.checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
