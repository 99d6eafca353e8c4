"""Memory shared with NumPy: the same address on both sides, lifetimes, and what is refused."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import spillway

DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "bool": np.bool_}


@pytest.mark.parametrize("name", DTYPES)
def test_in_and_out_is_the_same_memory(name):
    array = np.array([[0, 1, 2], [3, 4, 5]]).astype(DTYPES[name])
    tensor = spillway.Tensor(array)
    assert (tensor.shape, tensor.dtype, tensor.nbytes) == ((2, 3), name, array.nbytes)
    assert tensor.data_ptr() == array.ctypes.data
    for back in (tensor.numpy(), np.from_dlpack(tensor), np.asarray(tensor)):
        assert back.ctypes.data == array.ctypes.data
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
    array[0, 0] = 1
    assert tensor[0, 0].item() == 1


def test_the_exporter_lives_as_long_as_the_tensor():
    class Kept(np.ndarray):
        pass

    array = np.arange(4, dtype=np.float32).view(Kept)
    alive = weakref.ref(array)
    tensor = spillway.Tensor(array)
    tail = tensor.detach()
    del array, tensor
    gc.collect()
    assert alive() is not None
    assert tail.tolist() == [0, 1, 2, 3]
    del tail
    gc.collect()
    assert alive() is None


def test_the_tensor_lives_as_long_as_what_was_made_of_it():
    array = spillway.arange(1000).numpy()
    rest = [spillway.zeros((1000,)) for _ in range(20)]
    gc.collect()
    assert array.sum() == 499500 and len(rest) == 20


@pytest.mark.parametrize(
    "array, kind, word",
    [
        (np.zeros((2, 3), np.float32).T, ValueError, "contiguous"),
        (np.zeros(3, np.complex64), TypeError, "complex64"),
        (np.zeros(3, np.int16), TypeError, "int16"),
        (np.zeros((1,) * 7, np.float32), ValueError, "at most 6 axes"),
        (np.frombuffer(b"\0" * 8, np.float32), ValueError, "read-only"),
        ("words", TypeError, "DLPack"),
    ],
)
def test_what_is_refused_says_why(array, kind, word):
    with pytest.raises(kind, match=word) as error:
        spillway.Tensor(array)
    assert str(error.value).startswith("array: expected")


def test_copies_take_any_strides_and_lists():
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    np.testing.assert_array_equal(spillway.tensor(array.T).numpy(), array.T)
    assert spillway.tensor(np.frombuffer(b"\1\2", np.uint8)).tolist() == [1, 2]
    assert spillway.tensor([[1, 2], [3, 2**53 + 1]]).tolist() == [[1, 2], [3, 2**53 + 1]]
    assert spillway.tensor([1, 2.5]).dtype == "f32"
    with pytest.raises(ValueError, match="one length"):
        spillway.tensor([[1], [1, 2]])
    half = spillway.tensor([1.0, 3.140625], dtype="bf16")
    assert half.tolist() == [1.0, 3.140625]
    with pytest.raises(TypeError, match="bf16"):
        half.numpy()


def placed(shape, beyond, seed):
    """Normal numbers whose first element lies so many elements beyond a multiple of 64 bytes."""
    room = np.zeros(int(np.prod(shape)) * 4 + 128, np.uint8)
    begin = -room.ctypes.data % 64 + 4 * beyond
    array = room[begin : begin + int(np.prod(shape)) * 4].view(np.float32).reshape(shape)
    array[...] = np.random.default_rng(seed).normal(size=shape)
    return array


def test_where_memory_lies_changes_no_bit():
    """NumPy's begins at multiples of 16 bytes or less, the library's own at pages."""
    found = []
    for beyond in (0, 1, 3):
        arrays = [placed(shape, beyond, seed) for seed, shape in enumerate([(33, 65), (65, 31), (65,), (65,), (2, 3, 9, 11), (4, 3, 3, 3)])]
        x, w, gamma, beta, images, kernels = tensors = [spillway.Tensor(a).requires_grad_() for a in arrays]
        y = spillway.layer_norm(x, gamma, beta).gelu("tanh") @ w
        loss = spillway.cross_entropy(y, np.arange(33) % 31).to("f32") + spillway.rms_norm(x, gamma).softmax().sum(0).silu().mean()
        loss = loss + spillway.max_pool2d(spillway.conv2d(images, kernels, padding=1), 2).mean()
        optimizer = spillway.AdamW(tensors, lr=1e-2)
        loss.backward()
        norm = optimizer.step(max_norm=0.1)
        found.append([loss.item(), norm] + [t.grad.numpy().tobytes() for t in tensors] + [a.tobytes() for a in arrays])
    assert found[0] == found[1] == found[2]


def test_many_calls_leak_nothing():
    """10,000 calls, by what the process holds: as the first thousand left it."""
    script = """
import os, tracemalloc
import numpy as np, spillway
array = np.ones((64, 64), np.float32)
def calls(n):
    for _ in range(n):
        x = spillway.Tensor(array)
        w = spillway.ones((64, 64)).requires_grad_()
        (x * w).sum().backward()
        w.grad.numpy(), np.from_dlpack(x)
        try: spillway.Tensor(array.T)
        except ValueError: pass
def held(): return int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGESIZE')
calls(1000)
tracemalloc.start()
before, traced = held(), tracemalloc.get_traced_memory()[0]
calls(10000)
print(held() - before, tracemalloc.get_traced_memory()[0] - traced)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    resident, traced = map(int, said.stdout.split())
    assert resident < 2 << 20 and traced < 64 << 10, said.stdout  # an array for each row would take 160 MB
    assert said.stderr == ""
