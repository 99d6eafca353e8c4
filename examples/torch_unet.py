"""Lesson: a U-Net-like network of your own as blocks, whose skip connections are carried along. A list of modules is cut where you cut
it: what a module returns is what the next one is called with. A module on the way down appends its output to the tuple, and one on the
way up takes the last one off it, so the tuple grows and shrinks. The program trains the network a second time with PyTorch alone, and
ends by asserting that both runs have the same losses.

Usage: torch_unet.py [RUN [NVME]]: the run folder (the same one resumes the run), and a scratch folder in which weights, gradients and
optimizer state then lie.
"""

import pathlib
import shutil
import sys
import tempfile

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    sys.exit(f"torch_unet.py: expected PyTorch, got: {error}: pip install torch")
import spillway

STEPS, ROWS = 8, 4


class Down(nn.Module):
    def __init__(self, inputs, outputs, stride=2):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1)

    def forward(self, x, *skips):
        return F.gelu(self.conv(x)), *skips, x


class Up(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs + outputs, outputs, 3, 1, 1)

    def forward(self, x, *skips):
        return F.gelu(self.conv(torch.cat([F.interpolate(x, scale_factor=2), skips[-1]], 1))), *skips[:-1]


class Head(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, 1, 1)

    def forward(self, x):
        return self.conv(x)


class Stem(nn.Module):
    """The first module is called with the entries of the batch that its forward names."""

    def __init__(self, outputs):
        super().__init__()
        self.conv = nn.Conv2d(1, outputs, 3, 1, 1)

    def forward(self, noisy):
        return F.gelu(self.conv(noisy))


def make():
    """In fp64, so that the comparison at the end sees every mistake; leave double() out in your runs."""
    torch.manual_seed(0)
    blocks = {"stem": Stem(4), "down1": Down(4, 8), "down2": Down(8, 16), "up2": Up(16, 8), "up1": Up(8, 4), "head": Head(4)}
    return nn.ModuleDict(blocks).double()


def pictures():
    """Waves of four directions, and the same with noise."""
    generator = torch.Generator().manual_seed(1)
    at = torch.arange(16, dtype=torch.float64)
    clean = torch.stack([torch.sin(at[:, None] * (i % 4) / 3 + at / (1 + i % 3))[None] for i in range(16)])
    return {"noisy": clean + 0.5 * torch.randn(clean.shape, generator=generator, dtype=torch.float64), "clean": clean}


def loss(outputs, batch):
    return F.mse_loss(outputs, batch["clean"])


def by_spillway(run, nvme=None):
    kinds = ("parameters", "gradients", "optimizer", "activations")
    more = dict(nvme=nvme, **{f"place_{kind}": "nvme" for kind in kinds}) if nvme else {}
    trainer = spillway.Trainer(model=make(), loss=loss, data=pictures(), out=run, steps=STEPS, micro_batch_size=ROWS, device="cpu",
                               data_order="sequential", learning_rate=1e-2, lr_schedule="constant", warmup_steps=0, weight_decay=0,
                               betas=(0.9, 0.95), gradient_clipping=0, **more)
    return trainer.train(progress=False)


def by_pytorch():
    """The loop that the run replaces."""
    model, data, losses = make(), pictures(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0)
    for step in range(STEPS):
        batch = {name: value[[(step * ROWS + i) % len(value) for i in range(ROWS)]] for name, value in data.items()}
        carried = (batch["noisy"],)
        for module in model.values():
            carried = module(*carried)
            carried = carried if isinstance(carried, tuple) else (carried,)
        value = loss(carried[0], batch)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def main(run=None, nvme=None):
    folder = pathlib.Path(tempfile.gettempdir()) / "spillway_example_torch_unet"
    if run is None:
        shutil.rmtree(folder, ignore_errors=True)
    result = by_spillway(run or folder, nvme)
    print("losses:", *(f"{value:.4f}" for value in result.losses))
    torch.testing.assert_close(result.losses, by_pytorch(), rtol=1e-9, atol=0)
    print("PyTorch alone has the same losses to 1e-9; the weights are in", result.checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
