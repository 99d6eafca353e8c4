"""Lesson: a causal language model of transformers, trained by Spillway while PyTorch computes its blocks. The model is an object of
Python, so it may be of any family, and Spillway cuts it into blocks by itself: the embedding, each layer, and the head with the loss.
Weights, gradients and optimizer state may then lie on the device, in host memory or on nvme. The program trains the model a second time
with PyTorch alone, and ends by asserting that both runs have the same losses.

Usage: torch_causal_lm.py [RUN [NVME]]: the run folder (the same one resumes the run), and a scratch folder in which weights, gradients
and optimizer state then lie.
"""

import pathlib
import shutil
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as error:
    sys.exit(f"torch_causal_lm.py: expected PyTorch and transformers, got: {error}: pip install torch transformers")
import spillway

STEPS, ROWS, LENGTH = 10, 4, 32


def make():
    """A small Qwen 3 with random weights. In fp64, so that the comparison at the end is sharp; leave double() out in your runs."""
    config = transformers.Qwen3Config(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
                                      num_key_value_heads=2, head_dim=8, max_position_embeddings=LENGTH)
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).double()


def rows():
    """Sixteen counting sequences. A causal model's labels are its inputs; rows without labels get them."""
    return [{"input_ids": (torch.arange(LENGTH) * (1 + i % 4) + 16 * i) % 256} for i in range(16)]


def by_spillway(run, nvme=None):
    more = dict(nvme=nvme, place_parameters="nvme", place_gradients="nvme", place_optimizer="nvme") if nvme else {}
    trainer = spillway.Trainer(model=make(), data=rows(), out=run, steps=STEPS, micro_batch_size=ROWS,
                               data_order="sequential", device="cpu", learning_rate=3e-3, lr_schedule="constant",
                               warmup_steps=0, weight_decay=0.1, betas=(0.9, 0.95), **more)
    return trainer.train(progress=False)


def by_pytorch():
    """The loop that the run replaces: AdamW with weight decay on matrices, and gradients clipped to a norm of 1."""
    model, data, losses = make(), rows(), []
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2]},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(STEPS):
        batch = torch.stack([data[(step * ROWS + i) % len(data)]["input_ids"] for i in range(ROWS)])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(run=None, nvme=None):
    folder = pathlib.Path(tempfile.gettempdir()) / "spillway_example_torch_causal_lm"
    if run is None:
        shutil.rmtree(folder, ignore_errors=True)
    result = by_spillway(run or folder, nvme)
    print("losses:", *(f"{loss:.4f}" for loss in result.losses))
    torch.testing.assert_close(result.losses, by_pytorch(), rtol=1e-6, atol=0)  # transformers computes the loss itself in fp32
    print("PyTorch alone has the same losses to 1e-6; the weights are in", result.checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
