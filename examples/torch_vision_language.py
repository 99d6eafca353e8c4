"""Lesson: a vision-language model, of which only the text layers and the projector are trained. The vision tower is frozen with PyTorch's
own requires_grad_(False): it has no gradients and no optimizer state, and no backward runs through it. `layers` names the list of modules
at which the model is cut; the tower, the projector and the embedding stand before it and are one block. The program trains the model a
second time with PyTorch alone, and ends by asserting that both runs have the same losses and that the tower is unchanged.

Usage: torch_vision_language.py [RUN [NVME]]: the run folder (the same one resumes the run), and a scratch folder in which weights,
gradients and optimizer state then lie.
"""

import pathlib
import shutil
import sys
import tempfile

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    sys.exit(f"torch_vision_language.py: expected PyTorch and transformers, got: {error}: pip install torch transformers")
import spillway

STEPS, ROWS, IMAGE, PATCHES = 6, 2, 127, 4


def make():
    """A small LLaVA with random weights. In fp64, so that the comparison at the end is sharp; leave double() out in your runs."""
    config = transformers.LlavaConfig(
        image_token_index=IMAGE,
        text_config=transformers.LlamaConfig(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                                             num_attention_heads=4, max_position_embeddings=64),
        vision_config=transformers.CLIPVisionConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                                                    image_size=8, patch_size=4, projection_dim=16))
    torch.manual_seed(0)
    model = transformers.LlavaForConditionalGeneration(config).double()
    model.model.vision_tower.requires_grad_(False)
    return model


def rows():
    """A picture, its place in the text, and a sentence about its brightness. Labels of -100 do not count in the loss."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for i in range(8):
        text = (torch.arange(11) + 20 * (i % 4)) % IMAGE
        ids = torch.cat([torch.tensor([1]), torch.full((PATCHES,), IMAGE), text])
        pixels = torch.randn(3, 8, 8, generator=generator, dtype=torch.float64) + i % 4
        found.append({"input_ids": ids, "pixel_values": pixels, "labels": torch.where(torch.arange(16) <= PATCHES, -100, ids)})
    return found


def by_spillway(run, nvme=None):
    more = dict(nvme=nvme, place_parameters="nvme", place_gradients="nvme", place_optimizer="nvme") if nvme else {}
    trainer = spillway.Trainer(model=make(), layers="model.language_model.layers", data=rows(), out=run, steps=STEPS,
                               micro_batch_size=ROWS, data_order="sequential", device="cpu", learning_rate=3e-3, lr_schedule="constant",
                               warmup_steps=0, weight_decay=0, betas=(0.9, 0.95), **more)
    return trainer.train(progress=False)


def by_pytorch():
    """The loop that the run replaces."""
    model, data, losses = make(), rows(), []
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3, betas=(0.9, 0.95), weight_decay=0)
    for step in range(STEPS):
        some = [data[(step * ROWS + i) % len(data)] for i in range(ROWS)]
        loss = model(**{name: torch.stack([row[name] for row in some]) for name in some[0]}).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(run=None, nvme=None):
    folder = pathlib.Path(tempfile.gettempdir()) / "spillway_example_torch_vision_language"
    if run is None:
        shutil.rmtree(folder, ignore_errors=True)
    result = by_spillway(run or folder, nvme)
    print("losses:", *(f"{loss:.4f}" for loss in result.losses))
    torch.testing.assert_close(result.losses, by_pytorch(), rtol=1e-6, atol=0)  # transformers computes the loss itself in fp32
    trained = safetensors.torch.load_file(result.checkpoint / "model.safetensors")
    for name, value in make().model.vision_tower.named_parameters(prefix="model.vision_tower"):
        assert torch.equal(trained[name], value), name
    print("PyTorch alone has the same losses to 1e-6, and the tower is as it was; the weights are in", result.checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
