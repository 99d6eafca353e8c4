"""Models and optimizers: a loop of one's own."""

import json

import numpy as np
import pytest

import spillway

TOKENS = np.random.default_rng(1).integers(0, 256, (2, 12))


def train(steps, **made):
    model = spillway.Model("gpt2-tiny", seed=5, **made)
    optimizer = spillway.AdamW(model, lr=1e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model.loss(TOKENS)
        loss.backward()
        optimizer.step(max_norm=1.0)
        losses.append(loss.item())
    return model, optimizer, losses


def test_a_loop_learns_the_same_whatever_the_threads():
    losses = train(4)[2]
    assert losses[-1] < losses[0] - 0.5
    spillway.set_threads(3)
    try:
        assert train(4)[2] == losses
    finally:
        spillway.set_threads(2)


def test_the_loss_is_the_mean_over_counted_targets():
    model = spillway.Model("gpt2-tiny", seed=5)
    targets = np.full_like(TOKENS, -100)
    targets[1, 3] = 7
    logits = model.logits(TOKENS[1:, :4])
    with spillway.no_grad():
        assert abs(model.loss(TOKENS, targets).item() - spillway.cross_entropy(logits, [7]).item()) < 1e-5
    with pytest.raises(ValueError, match="targets: expected at least one"):
        model.loss(TOKENS, np.full_like(TOKENS, -1))
    with pytest.raises(spillway.DataError, match="256"):
        model.loss(TOKENS + 256)


def test_parameters_are_the_models_memory():
    model = spillway.Model("gpt2-tiny")
    name = "transformer.h.0.attn.c_attn.weight"
    weight = model[name]
    assert weight.name == name and weight.shape == (128, 384) and weight.grad is None
    before = model.loss(TOKENS, training=False).item()
    with pytest.raises(spillway.UsageError, match="a leaf Variable that requires grad"):
        weight.copy_(np.zeros(weight.shape, np.float32))
    with spillway.no_grad():
        weight.copy_(np.zeros(weight.shape, np.float32))
    assert model.loss(TOKENS, training=False).item() != before
    shared = {n: np.ascontiguousarray(p.numpy() * 0.5) for n, p in model.named_parameters()}
    model.load_state_dict(shared, share=True)
    assert model[name].data_ptr() == shared[name].ctypes.data
    model.loss(TOKENS).backward()
    spillway.SGD(model, lr=0.1).step()
    wte = "transformer.wte.weight"
    assert np.array_equal(model[wte].numpy(), shared[wte]) and model[wte].grad.shape == (256, 128)
    with pytest.raises(KeyError, match="transformer.wpe.weight"):
        model.load_state_dict({wte: shared[wte]})
    model.freeze(wte)
    assert not model[wte].requires_grad and len(model.trained()) == len(model) - 1


@pytest.mark.parametrize("first", [True, False])
def test_a_parameter_in_an_expression_and_in_the_model(first):
    """Its gradient is the sum, whichever comes first."""
    name = "transformer.wte.weight"
    model = spillway.Model("gpt2-tiny", seed=5)

    def penalty():
        return ((model[name] * model[name]).sum() * 0.5).to("f64")

    model.loss(TOKENS).backward()
    alone = model[name].grad.numpy().copy()
    model.zero_grad()
    loss = penalty() + model.loss(TOKENS) if first else model.loss(TOKENS) + penalty()
    loss.backward()
    np.testing.assert_allclose(model[name].grad.numpy() - alone, model[name].numpy(), rtol=1e-4, atol=1e-6)


def test_tokens_are_whole_numbers_of_any_width(tmp_path):
    model = spillway.Model("gpt2-tiny", seed=5)
    with spillway.no_grad():
        expected = model.loss(TOKENS).item()
        for kind in (np.uint8, np.uint16, np.int32, np.uint64):
            assert model.loss(TOKENS.astype(kind)).item() == expected
        assert model.loss(TOKENS.tolist()).item() == expected
        TOKENS.T.astype(np.uint16).tofile(tmp_path / "tokens")
        assert model.loss(np.memmap(tmp_path / "tokens", np.uint16, "r", shape=TOKENS.T.shape).T).item() == expected
        with pytest.raises(ValueError, match="fit 32 bits"):
            model.loss(TOKENS + 2**40)
        with pytest.raises(TypeError, match="tokens: expected whole numbers"):
            model.loss(TOKENS.astype(np.float32))


def test_saved_and_gone_on_with(tmp_path):
    model, optimizer, _ = train(2)
    model.save(tmp_path / "model")
    optimizer.save(tmp_path / "state.safetensors")
    assert json.loads((tmp_path / "model/config.json").read_text())["n_embd"] == model.config["n_embd"] == 128
    again = spillway.Model(str(tmp_path / "model"))
    resumed = spillway.AdamW(again, lr=1e-3)
    resumed.load(tmp_path / "state.safetensors")
    for one, other in ((model, optimizer), (again, resumed)):
        other.zero_grad()
        one.loss(TOKENS).backward()
        other.step()
    for one, other in zip(model.parameters(), again.parameters()):
        assert np.array_equal(one.numpy(), other.numpy()), one.name
    (tmp_path / "model/mine.txt").write_text("mine")
    with pytest.raises(spillway.UsageError, match="mine.txt"):
        model.save(tmp_path / "model")


def test_tensors_of_ones_own_are_stepped():
    x = spillway.randn((64, 2), seed=1)
    wanted = 2 * x[:, 0:1] - 3 * x[:, 1:2] + 1
    weight, bias = spillway.zeros((1, 2)).requires_grad_(), spillway.zeros((1,)).requires_grad_()
    address = weight.data_ptr()
    optimizer = spillway.SGD([weight, bias], lr=0.1, momentum=0.5)
    for _ in range(100):
        optimizer.zero_grad()
        spillway.mse_loss(spillway.linear(x, weight, bias), wanted).backward()
        optimizer.step()
    np.testing.assert_allclose([*weight.numpy()[0], *bias.numpy()], [2, -3, 1], atol=1e-4)
    assert weight.data_ptr() == address
    with pytest.raises(ValueError, match="requires_grad"):
        spillway.Adam([x])


def test_an_image_model():
    model = spillway.Model("lenet", seed=1)
    images = np.random.default_rng(0).normal(size=(4, *map(int, model_input(model)))).astype(np.float32)
    loss = model.loss(images, [0, 1, 2, 3])
    loss.backward()
    assert model.logits(images).shape == (4, 10) and loss.item() > 0
    with pytest.raises(TypeError, match="classes"):
        model.loss(images)


def model_input(model):
    with pytest.raises(ValueError) as error:
        model.loss(np.zeros((4, 1, 1, 1), np.float32), [0] * 4)
    return str(error.value).split("[4, ")[1].split("]")[0].split(", ")
