"""Lesson: a mixture of experts, whose loss needs more than the last hidden state. With output_router_logits the model adds a loss that
balances its experts, computed at the end from what every layer's router said. What travels between blocks is therefore a tuple: the
hidden state and the router logits of all layers so far. It is offloaded and sent like any activation. The blocks are printed with what
they hand on. The program trains the model a second time with PyTorch alone, and ends by asserting that both runs have the same losses.

Usage: torch_experts.py [RUN [NVME]]: the run folder (the same one resumes the run), and a scratch folder in which weights, gradients and
optimizer state then lie.
"""

import pathlib
import shutil
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as error:
    sys.exit(f"torch_experts.py: expected PyTorch and transformers, got: {error}: pip install torch transformers")
import spillway
import spillway.torch

STEPS, ROWS, LENGTH = 6, 2, 16


def make():
    """A small Mixtral with random weights. In fp64, so that the comparison at the end sees every mistake; leave double() out in your runs.
    PyTorch multiplies the rows of experts in fp64 with "eager" only."""
    config = transformers.MixtralConfig(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                                        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True,
                                        router_aux_loss_coef=0.1, max_position_embeddings=LENGTH)
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, experts_implementation="eager").double()


def rows():
    ids = [(torch.arange(LENGTH) * (1 + i % 4) + 8 * i) % 128 for i in range(16)]
    return [{"input_ids": one, "labels": one} for one in ids]


def show_blocks():
    """Cuts the model as the run does, and prints each block with the shapes of what it hands on."""
    batch = {name: value[None] for name, value in rows()[0].items()}
    carried = ()
    with torch.no_grad():
        for block in spillway.torch.blocks(make(), batch).pieces:
            carried = block.run(carried, batch)
            print(f"{block.name}: {len(block.parameters)} parameters, hands on {[tuple(one.shape) for one in carried]}")


def by_spillway(run, nvme=None):
    more = dict(nvme=nvme, place_parameters="nvme", place_gradients="nvme", place_optimizer="nvme") if nvme else {}
    trainer = spillway.Trainer(model=make(), data=rows(), out=run, steps=STEPS, micro_batch_size=ROWS,
                               data_order="sequential", device="cpu", learning_rate=3e-3, lr_schedule="constant",
                               warmup_steps=0, weight_decay=0, betas=(0.9, 0.95), **more)
    return trainer.train(progress=False)


def by_pytorch():
    """The loop that the run replaces."""
    model, data, losses = make(), rows(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0)
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
    folder = pathlib.Path(tempfile.gettempdir()) / "spillway_example_torch_experts"
    if run is None:
        shutil.rmtree(folder, ignore_errors=True)
    show_blocks()
    result = by_spillway(run or folder, nvme)
    print("losses:", *(f"{loss:.4f}" for loss in result.losses))
    torch.testing.assert_close(result.losses, by_pytorch(), rtol=1e-6, atol=0)  # transformers computes the loss itself in fp32
    print("PyTorch alone has the same losses to 1e-6; the weights are in", result.checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
