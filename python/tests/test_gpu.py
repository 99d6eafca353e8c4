"""Tensors and models on a GPU: the same memory on both sides, PyTorch's rules, what is refused. Real ones, or emulated ones (a build with
-DSPILLWAY_CUDA=EMULATED, SPILLWAY_EMULATED_GPUS=2), whose memory nobody may touch but kernels and copies."""

import gc

import numpy as np
import pytest

import spillway


def has_gpus(count):
    try:
        spillway.zeros((1,), device=f"cuda:{count - 1}")
    except spillway.UsageError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_gpus(1), reason="no GPU that this build can use")
X = np.arange(12, dtype=np.float32).reshape(3, 4) / 7


class Foreign:
    """Another library's array on a GPU: DLPack's protocol alone."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **how):
        return self.tensor.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_tensors_go_there_and_back():
    for values in (X, X.astype(np.float16), X.astype(np.int64), X > 1):
        there = spillway.tensor(values).to("cuda")
        assert there.device == "cuda:0" and there.__dlpack_device__() == (2, 0)
        np.testing.assert_array_equal(there.cpu().numpy(), values)
        np.testing.assert_array_equal(there.T.clone().cpu().numpy(), values.T)
        assert there.tolist() == values.tolist()
    assert spillway.tensor(X, device="cuda:0").cuda().device == "cuda:0"
    assert "cuda:0" in repr(there) and there.cpu().to("cpu").device == "cpu"


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16", "i32", "u8", "bool"])
def test_types_change_there_as_here(dtype):
    here, there = spillway.tensor(X).to(dtype), spillway.tensor(X, device="cuda").to(dtype)
    assert there.device == "cuda:0" and there.tolist() == here.tolist()
    assert there.to("f32").tolist() == here.to("f32").tolist()


def test_made_there_they_hold_what_they_would_here():
    for make in (
        lambda **d: spillway.zeros((2, 3), **d),
        lambda **d: spillway.full((5,), 2.5, dtype="bf16", **d),
        lambda **d: spillway.arange(7, dtype="i32", **d),
        lambda **d: spillway.randn((4, 4), seed=3, **d),
        lambda **d: spillway.uniform((9,), seed=3, **d),
    ):
        assert make(device="cuda").tolist() == make().tolist()


def test_dlpack_is_the_same_memory_both_ways():
    owner = spillway.tensor(X, device="cuda")
    view = spillway.Tensor(Foreign(owner))
    assert view.data_ptr() == owner.data_ptr() and view.device == "cuda:0"
    owner.copy_(X + 1)
    np.testing.assert_array_equal(view.cpu().numpy(), X + 1)
    view.copy_(X * 2)
    del owner
    gc.collect()
    np.testing.assert_array_equal(view.cpu().numpy(), X * 2)  # the exporting tensor still exists
    np.testing.assert_array_equal(spillway.tensor(Foreign(view)).cpu().numpy(), X * 2)
    assert spillway.tensor(Foreign(view)).data_ptr() != view.data_ptr()


def waits_for_the_whole_gpu(tmp_path, monkeypatch, work):
    """How often the work waits for all queues of an emulated GPU, which lists the calls; None on a real one."""
    calls = tmp_path / "calls"
    monkeypatch.setenv("SPILLWAY_EMULATED_LOG", str(calls))
    work()
    monkeypatch.delenv("SPILLWAY_EMULATED_LOG")
    return calls.read_text().split().count("cudaDeviceSynchronize") if calls.exists() else None


def test_dlpack_orders_streams_and_does_not_wait(tmp_path, monkeypatch):
    owner, asked, kept = spillway.tensor(X, device="cuda"), [], []

    class Asked(Foreign):
        def __dlpack__(self, **how):
            asked.append(how.get("stream"))
            return super().__dlpack__(**how)

    class WithoutStreams(Foreign):
        def __dlpack__(self):
            return super().__dlpack__()

    def there_and_back():
        owner.copy_(X + 1)
        np.testing.assert_array_equal(spillway.Tensor(Asked(owner)).cpu().numpy(), X + 1)
        kept.append(owner.__dlpack__(stream=-1))  # at its end the work of a reader that orders itself is waited for

    assert waits_for_the_whole_gpu(tmp_path, monkeypatch, there_and_back) in (0, None)
    assert asked == [1]  # the default stream
    assert waits_for_the_whole_gpu(tmp_path, monkeypatch, lambda: kept.append(owner.__dlpack__())) in (1, None)  # names no stream
    np.testing.assert_array_equal(spillway.Tensor(WithoutStreams(owner)).cpu().numpy(), X + 1)


def test_gradients_are_those_of_the_cpu():
    weight = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)

    def grads(device):
        x = spillway.tensor(X, device=device, requires_grad=True)
        w = spillway.tensor(weight, device=device, requires_grad=True)
        loss = spillway.cross_entropy(spillway.gelu(spillway.linear(x, w)), [0, 1, 1])
        loss.backward()
        assert x.grad.device == loss.device == x.device
        return loss.item(), x.grad.cpu().numpy(), w.grad.cpu().numpy()

    here, there = grads("cpu"), grads("cuda")
    for a, b in zip(here, there):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7)


def test_a_loop_there_goes_the_way_of_the_cpu(tmp_path):
    tokens = np.arange(32).reshape(2, 16)

    def losses(device):
        model = spillway.Model("gpt2-tiny", seed=1, device=device)
        assert model.device.startswith(device)
        optimizer = spillway.AdamW(model, lr=1e-3)
        seen = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model.loss(tokens)
            loss.backward()
            optimizer.step(max_norm=1.0)
            seen.append(loss.item())
        model.save(tmp_path / device)
        optimizer.save(tmp_path / (device + ".state"))
        return seen, model.logits(tokens).tolist()

    here, there = losses("cpu"), losses("cuda")
    np.testing.assert_allclose(here[0], there[0], rtol=1e-5)
    assert here[0][2] < here[0][0]
    np.testing.assert_allclose(here[1], there[1], rtol=1e-3, atol=1e-4)
    again = spillway.Model(str(tmp_path / "cuda"))
    np.testing.assert_allclose(again.logits(tokens).tolist(), there[1], rtol=1e-4, atol=1e-5)


def test_a_model_moves_whole_and_what_is_left_behind_says_so():
    model = spillway.Model("gpt2-tiny", seed=1)
    old, optimizer = model["transformer.wte.weight"], spillway.SGD(model, lr=0.1)
    values = old.numpy().copy()
    loss = model.loss(np.arange(16).reshape(1, 16))
    loss.backward()
    assert model.to("cuda") is model and model.device == "cuda:0"
    assert model["transformer.wte.weight"].grad is None
    np.testing.assert_array_equal(model["transformer.wte.weight"].detach().cpu().numpy(), values)
    with pytest.raises(spillway.UsageError, match="again"):
        old + 1.0
    with pytest.raises(spillway.UsageError, match="make the optimizer"):
        optimizer.step()
    model.to("cpu")
    np.testing.assert_array_equal(model["transformer.wte.weight"].numpy(), values)


def test_a_model_lies_in_another_programs_memory():
    model = spillway.Model("gpt2-tiny", seed=1, device="cuda")
    state = {name: Foreign(spillway.tensor(p)) for name, p in model.state_dict().items()}
    model.load_state_dict(state, share=True)
    name = "transformer.wte.weight"
    assert model[name].data_ptr() == state[name].tensor.data_ptr()
    before = state[name].tensor.cpu().numpy().copy()
    optimizer = spillway.SGD(model, lr=0.5)
    model.loss(np.arange(16).reshape(1, 16)).backward()
    optimizer.step()
    assert (state[name].tensor.cpu().numpy() != before).any()
    with pytest.raises(spillway.UsageError, match="on cuda:0"):
        model.load_state_dict({n: p.detach().cpu() for n, p in model.state_dict().items()}, share=True)


def test_what_is_refused_says_why():
    there, here = spillway.tensor(X, device="cuda"), spillway.tensor(X)
    with pytest.raises(spillway.UsageError, match="one device"):
        there + here
    with pytest.raises(spillway.UsageError, match="one device"):
        spillway.where(spillway.tensor(X > 1), there, there)
    with pytest.raises(TypeError, match="host memory"):
        there.numpy()
    with pytest.raises(spillway.UsageError, match="detach"):
        spillway.tensor(X, requires_grad=True).cuda()
    with pytest.raises(spillway.UsageError, match="cuda:77"):
        spillway.zeros((1,), device="cuda:77")
    with pytest.raises(ValueError, match="cpu, cuda or cuda:1"):
        spillway.zeros((1,), device="cuda:x")
    with pytest.raises(spillway.RefusedError, match="free"):
        spillway.zeros((1 << 44,), dtype="u8", device="cuda")
    assert there.sum().item() == pytest.approx(X.sum(), rel=1e-6)  # the GPU still works after the refusal


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_index_out_of_range_is_an_error_and_no_nan(device):
    table, logits = spillway.tensor(X, device=device), spillway.tensor(X, device=device)
    model = spillway.Model("gpt2-tiny", seed=1, device=device)
    for call in (
        lambda: spillway.embedding([0, 3], table),
        lambda: spillway.cross_entropy(logits, [0, 1, 4]),
        lambda: spillway.nll_loss(logits, [0, 4, 1]),
        lambda: model.loss([[1, 2, 60000]]),
        lambda: model.loss([[1, 2, 3]], [[2, 3, 60000]]),
        lambda: model.logits([[1, -1]]),
    ):
        with pytest.raises(spillway.DataError, match="outside the table|not below the number of classes"):
            call()
    with pytest.raises(IndexError, match="one of 3 elements"):
        spillway.index_select(table, 0, [3])
    assert np.isfinite(spillway.cross_entropy(logits, [0, -1, 3], ignore_index=0).item())
    assert np.isfinite(spillway.cross_entropy(logits, [0, 1, 9], ignore_index=9).item())


class Picks(spillway.Block):
    """Has no values of the ids in its forward on a GPU, so that only the kernel sees them."""

    def __init__(self, pick):
        self.table, self.pick = spillway.Parameter((3, 4), std=1.0), pick

    def forward(self, x, batch):
        return batch.loss(self.pick(self.table, batch["id"]))


@pytest.mark.parametrize("name, pick", [
    ("embedding", lambda table, ids: spillway.embedding(ids, table).sum(-1)),
    ("gather", lambda table, ids: spillway.gather(table.sum(1), 0, ids.reshape(-1)).reshape(-1, 1)),
    ("cross_entropy", lambda table, ids: spillway.cross_entropy(table[:1].expand(len(ids), 4)[:, :3], ids.reshape(-1), reduction="none")),
])
def test_an_index_out_of_range_in_a_block_is_an_error_of_its_operation(tmp_path, name, pick):
    data = [{"id": [3 if i == 5 else i % 3]} for i in range(8)]
    trainer = spillway.Trainer(model=[Picks(pick)], data=data, device="cuda", steps=4, micro_batch_size=2, global_batch_size=2,
                               learning_rate=0.01, precision="fp32", data_order="sequential", out=tmp_path / "run")
    with pytest.raises(spillway.DataError, match=rf"\[{name}\] expected an index in \[0, 3\), got 3"):
        trainer.train()


def test_memory_comes_back():
    kept = spillway.zeros((1 << 18,), device="cuda")
    for _ in range(2000):  # 2 GB in all, more memory than an emulated GPU has
        kept = kept + 1.0
    assert kept[0].item() == 2000


def test_memory_that_tensors_left_can_be_had_again():
    piece = (400 << 20,)  # an emulated GPU has 1 GiB
    for longer in (piece, (2 * piece[0],)):
        first, second = (spillway.zeros(piece, dtype="u8", device="cuda") for _ in range(2))
        del first, second
        gc.collect()
        assert spillway.zeros(longer, dtype="u8", device="cuda")[0].item() == 0
    spillway.empty_cache()
    assert spillway.zeros(piece, dtype="u8", device="cuda")[0].item() == 0


@pytest.mark.skipif(not has_gpus(2), reason="one GPU")
def test_two_gpus_are_two_devices():
    first, second = spillway.tensor(X, device="cuda:0"), spillway.tensor(X, device="cuda:1")
    with pytest.raises(spillway.UsageError, match="cuda:0 and one on cuda:1"):
        first + second
    assert (first.to("cuda:1") + second).device == "cuda:1"
    assert (second.to("cuda:0") * first).device == "cuda:0"
    model = spillway.Model("gpt2-tiny", seed=1, device="cuda:1")
    model.loss(np.arange(16).reshape(1, 16)).backward()
    assert model["transformer.wte.weight"].grad.device == "cuda:1"


def test_values_are_written_in_place_from_anywhere():
    there = spillway.tensor(X, device="cuda")
    address = there.data_ptr()
    for source in (X + 1, spillway.tensor(X + 2), spillway.tensor(X + 3, device="cuda"), Foreign(spillway.tensor(X + 4, device="cuda")),
                   spillway.tensor((X + 5).T.copy(), device="cuda").T, spillway.tensor(X + 6, device="cuda").to("bf16")):
        there.copy_(source)
        expected = source if isinstance(source, np.ndarray) else spillway.tensor(getattr(source, "tensor", source)).to("f32").cpu().numpy()
        np.testing.assert_array_equal(there.cpu().numpy(), expected)
    here = spillway.tensor(X)
    here.copy_(there)
    assert there.data_ptr() == address and here.tolist() == there.tolist()
    there.copy_(there)
    assert here.tolist() == there.tolist()
