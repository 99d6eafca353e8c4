"""Ten AdamW steps of small models of transformers, one of them of text and pictures: PyTorch's own in fp64, and the same bits wherever the bytes lie."""

import hashlib

import pytest

torch = pytest.importorskip("torch")
tf = pytest.importorskip("transformers")

import spillway  # noqa: E402
from test_torch_cut import BASE, FAMILIES, VOCABULARY, made  # noqa: E402

STEPS, ROWS = 10, 24
# Their routers or states compute in fp32, so that a last bit of fp64 becomes one of fp32 (6e-8) here and there.
COMPUTE_IN_FP32 = ("deepseek_v3", "nemotron_h", "glm4_moe", "zamba2", "qwen3_next", "qwen3_5_text")
NVME = dict(place_parameters="nvme", place_gradients="nvme", place_optimizer="nvme")
RANKS = dict(ranks=2, communicator="local")
PLACEMENTS = {"device": {}, "nvme": NVME, "zero 3": dict(zero_stage=3, **RANKS), "two stages": dict(pipeline_stages=2, **RANKS)}
SETTINGS = dict(steps=STEPS, micro_batch_size=4, global_batch_size=8, learning_rate=0.003, weight_decay=0.1, data_order="sequential", device="cpu",
                threads=1,  # PyTorch's sums depend on the number of threads, which two ranks share
                lr_schedule="constant", warmup_steps=0, gradient_clipping=1.0, betas=(0.9, 0.95))


ALL = [*FAMILIES, "llava"]
PATCHES = 4


def with_pictures():
    vision = tf.CLIPVisionConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=8, patch_size=4,
                                 projection_dim=16)
    config = tf.LlavaConfig(vision_config=vision, text_config=dict(model_type="llama", **BASE), image_token_index=VOCABULARY - 1)
    torch.manual_seed(0)
    return tf.LlavaForConditionalGeneration(config).double()


def model_of(family):
    model = with_pictures() if family == "llava" else made(family)
    if getattr(model.config, "output_router_logits", False):  # for the loss of the experts' load, which the loss below has not
        model.config.output_router_logits = False
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def rows(family):
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(3, VOCABULARY - 10, (ROWS, 17), generator=generator)
    if family != "llava":
        return {"input_ids": ids, "labels": ids.clone()}
    labels = ids.clone()
    labels[:, 1 : 1 + PATCHES] = -100
    ids[:, 1 : 1 + PATCHES] = VOCABULARY - 1
    return {"input_ids": ids, "labels": labels, "pixel_values": torch.randn(ROWS, 3, 8, 8, generator=generator, dtype=torch.float64)}


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
            inputs = {key: value.to(model.dtype) if value.is_floating_point() else value for key, value in batch.items() if key != "labels"}
            part = loss(model(**inputs, use_cache=False), batch) / 2
            part.backward()
            total += part.item()
        for p in model.parameters():
            if p.grad is None:  # PyTorch would leave it out of the step; a run gives it a gradient of zero
                p.grad = torch.zeros_like(p)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(total)
    return losses


@pytest.mark.parametrize("family", ALL)
def test_steps_are_pytorchs_and_bits_are_everywhere_the_same(tmp_path, family):
    data, reference = rows(family), model_of(family)
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


def distance(model, weights):
    """How far weights are from those of a model in fp64, as a share of their length."""
    exact = {name: p.detach() for name, p in model.named_parameters()}
    off = sum(float((weights[name].detach().double() - p).square().sum()) for name, p in exact.items())
    return (off / sum(float(p.square().sum()) for p in exact.values())) ** 0.5


def fp32_errors(folder, family, **changed):
    """Trains a family in fp32 and returns how far losses and weights are from fp64: the run's error and PyTorch's own for each."""
    from safetensors.torch import load_file

    data, exact, own = rows(family), model_of(family), model_of(family).float()
    start = model_of(family).float()
    exact.load_state_dict(own.state_dict())  # the same start, rounded
    right, theirs = by_pytorch(exact, data), by_pytorch(own, data)
    settings = {**SETTINGS, **changed}
    result = spillway.Trainer(model=start, data=data, loss=loss, out=folder / "run", **settings).train(progress=False, log=lambda line: None)
    ours = load_file(result.checkpoint / "model.safetensors")
    losses = [max(abs(a - b) / b for a, b in zip(found, right)) for found in (result.losses, theirs)]
    weights = [distance(exact, {name: ours[name] for name, _ in exact.named_parameters()}), distance(exact, dict(own.named_parameters()))]
    return {"losses": losses, "weights": weights}


def is_near(errors):
    """The bound is PyTorch's own error: both round the same operations to fp32, though in sums and norms in another order, so that neither
    error is a multiple of the other's. Two is allowed, and below one rounding of each step no difference is asked for."""
    ours, theirs = errors
    return ours <= 2 * max(theirs, STEPS * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("family", ALL)
def test_fp32_is_as_near_to_fp64_as_pytorchs_own(tmp_path, family):
    errors = fp32_errors(tmp_path, family)
    assert all(map(is_near, errors.values())), errors


# Of one part in ten thousand: in the decay of AdamW's second moment, and in the norm that clips. The weights' own decay changes them by a part
# in 3,000 a step, of which a twentieth is the third fault.
@pytest.mark.parametrize("fault", [dict(betas=(0.9, 0.95 * 1.0001)), dict(gradient_clipping=1.0001), dict(weight_decay=0.1 * 1.05)])
def test_a_small_fault_is_seen_in_fp32(tmp_path, fault):
    errors = fp32_errors(tmp_path, "olmo3", **fault)
    assert not all(map(is_near, errors.values())), errors
