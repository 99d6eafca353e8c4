"""Ten AdamW steps of small models of transformers: PyTorch's own in fp64, and the same bits wherever the bytes lie."""

import hashlib

import pytest

torch = pytest.importorskip("torch")
tf = pytest.importorskip("transformers")

import spillway  # noqa: E402
from test_torch_cut import FAMILIES, VOCABULARY, made  # noqa: E402

STEPS, ROWS = 10, 24
# Their routers or states compute in fp32, so that a last bit of fp64 becomes one of fp32 (6e-8) here and there.
COMPUTE_IN_FP32 = ("deepseek_v3", "nemotron_h", "glm4_moe", "zamba2", "qwen3_next", "qwen3_5_text")
NVME = dict(place_parameters="nvme", place_gradients="nvme", place_optimizer="nvme")
RANKS = dict(ranks=2, communicator="local")
PLACEMENTS = {"device": {}, "nvme": NVME, "zero 3": dict(zero_stage=3, **RANKS), "two stages": dict(pipeline_stages=2, **RANKS)}
SETTINGS = dict(steps=STEPS, micro_batch_size=4, global_batch_size=8, learning_rate=0.003, weight_decay=0.1, data_order="sequential", device="cpu",
                threads=1,  # PyTorch's sums depend on the number of threads, which two ranks share
                lr_schedule="constant", warmup_steps=0, gradient_clipping=1.0, betas=(0.9, 0.95))


def model_of(family):
    model = made(family)
    if getattr(model.config, "output_router_logits", False):  # for the loss of the experts' load, which the loss below has not
        model.config.output_router_logits = False
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def rows():
    ids = torch.randint(3, VOCABULARY - 10, (ROWS, 17), generator=torch.Generator().manual_seed(2))
    return {"input_ids": ids, "labels": ids.clone()}


def loss(outputs, batch):
    """The models' own loss computes in fp32, which would hide what differs in fp64."""
    return torch.nn.functional.cross_entropy(outputs.logits[:, :-1].double().flatten(0, 1), batch["labels"][:, 1:].flatten())


def by_pytorch(model, data):
    matrices, others = [p for p in model.parameters() if p.dim() >= 2], [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=0.003,
                                  betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for k in range(2):
            batch = {key: value[[(step * 8 + k * 4 + i) % ROWS for i in range(4)]] for key, value in data.items()}
            part = loss(model(input_ids=batch["input_ids"], use_cache=False), batch) / 2
            part.backward()
            total += part.item()
        for p in model.parameters():
            if p.grad is None:  # PyTorch would leave it out of the step; a run gives it a gradient of zero
                p.grad = torch.zeros_like(p)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(total)
    return losses


@pytest.mark.parametrize("family", FAMILIES)
def test_steps_are_pytorchs_and_bits_are_everywhere_the_same(tmp_path, family):
    data, reference = rows(), model_of(family)
    expected, bits = by_pytorch(reference, data), {}
    for name, placement in PLACEMENTS.items():
        folder = tmp_path / name
        folder.mkdir()
        settings = {**SETTINGS, **placement, **(dict(nvme=folder / "scratch") if placement is NVME else {})}
        result = spillway.Trainer(model=model_of(family), data=data, loss=loss, out=folder / "run", **settings).train(
            progress=False, log=lambda line: None)
        assert result.losses == pytest.approx(expected, rel=1e-7 if family in COMPUTE_IN_FP32 else 1e-9), name
        bits[name] = hashlib.sha256((result.checkpoint / "model.safetensors").read_bytes()).hexdigest()
    assert len(set(bits.values())) == 1, bits
