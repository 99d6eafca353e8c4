"""Lesson: an image classifier of your own, a small ResNet with batch norm, as a list of modules. A list is cut where you cut it: each
module is a block, the first one reads the batch, and a loss function compares what the last one returns with the batch. Batch norm's
running statistics are trained, saved and resumed with the weights. The program trains the network a second time with PyTorch alone, and
ends by asserting that losses and statistics are the same.

Usage: torch_images.py [RUN [NVME]]: the run folder (the same one resumes the run), and a scratch folder in which weights, gradients and
optimizer state then lie.
"""

import pathlib
import shutil
import sys
import tempfile

try:
    import safetensors.torch
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    sys.exit(f"torch_images.py: expected PyTorch and safetensors, got: {error}: pip install torch safetensors")
import spillway

STEPS, ROWS = 8, 8


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Sequential() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.short(x))


def make():
    """In fp64, so that the comparison at the end sees every mistake; leave double() out in your runs."""
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
    return nn.Sequential(stem, Residual(8, 8, 1), Residual(8, 16, 2), head).double()


def pictures():
    """A dictionary of arrays, with one row for each picture: noise with a bright corner, and which of the four corners it is."""
    generator = torch.Generator().manual_seed(1)
    classes = torch.arange(32) % 4
    pixels = torch.randn(32, 3, 16, 16, generator=generator, dtype=torch.float64)
    for picture, corner in zip(pixels, classes.tolist()):
        picture[:, corner // 2 * 8 :, corner % 2 * 8 :][:, :8, :8] += 1
    return {"pixels": pixels, "class": classes}


def loss(outputs, batch):
    return F.cross_entropy(outputs, batch["class"])


def by_spillway(run, nvme=None):
    more = dict(nvme=nvme, place_parameters="nvme", place_gradients="nvme", place_optimizer="nvme") if nvme else {}
    trainer = spillway.Trainer(model=make(), loss=loss, data=pictures(), out=run, steps=STEPS, micro_batch_size=ROWS,
                               data_order="sequential", device="cpu", optimizer="sgd", momentum=0.9, learning_rate=0.05,
                               lr_schedule="constant", warmup_steps=0, gradient_clipping=0, **more)
    return trainer.train(progress=False)


def by_pytorch():
    """The loop that the run replaces."""
    model, data, losses = make(), pictures(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(STEPS):
        at = [(step * ROWS + i) % 32 for i in range(ROWS)]
        value = loss(model(data["pixels"][at]), {"class": data["class"][at]})
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses, model


def main(run=None, nvme=None):
    folder = pathlib.Path(tempfile.gettempdir()) / "spillway_example_torch_images"
    if run is None:
        shutil.rmtree(folder, ignore_errors=True)
    result = by_spillway(run or folder, nvme)
    print("losses:", *(f"{value:.4f}" for value in result.losses))
    losses, model = by_pytorch()
    torch.testing.assert_close(result.losses, losses, rtol=1e-9, atol=0)
    trained = safetensors.torch.load_file(result.checkpoint / "model.safetensors")
    for name, value in model.named_buffers():
        if "running" in name:
            torch.testing.assert_close(trained[name], value, rtol=1e-9, atol=1e-9)
    print("PyTorch alone has the same losses and running statistics to 1e-9; the weights are in", result.checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
