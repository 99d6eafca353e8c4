"""Operations and gradients against NumPy and hand-made derivatives; graphs, threads, forks."""

import multiprocessing
import os
import threading

import numpy as np
import pytest

import spillway


def leaf(values):
    return spillway.tensor(values, dtype="f64", requires_grad=True)


def test_gradients_of_an_expression():
    x, w = spillway.tensor([[1.0, 2.0], [3.0, 4.0]], dtype="f64"), leaf([[0.5], [-1.0]])
    loss = ((x @ w - 1) ** 2).mean()
    loss.backward()
    error = np.array([[1.0, 2.0], [3.0, 4.0]]) @ [[0.5], [-1.0]] - 1
    assert loss.item() == (error**2).mean()
    np.testing.assert_allclose(w.grad.numpy(), np.array([[1.0, 3.0], [2.0, 4.0]]) @ error, rtol=1e-15)
    assert x.grad is None


def test_gradients_add_up_until_they_are_forgotten():
    w = leaf([2.0])
    for _ in range(3):
        (w * w).sum().backward()
    assert w.grad.tolist() == [12.0]
    w.grad = None
    assert w.grad is None


def test_operations_are_numpys():
    a = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    x = spillway.Tensor(a)
    pairs = [(x.exp(), np.exp(a)), (2 - x, 2 - a), (x / 3, a / 3), (1 / x, 1 / a), (-x, -a), (x.sum(0), a.sum(0)), (x.mean((0, 1)), a.mean()),
             (x.max(1, keepdims=True).values, a.max(1, keepdims=True)), (x.T, a.T), (x.reshape(2, -1), a.reshape(2, 6)), (x[1:, ::2], a[1:, ::2]),
             (x[..., -1], a[..., -1]), (spillway.cat([x, x], 1), np.concatenate([a, a], 1)), (x.var(correction=0), a.var()),
             (spillway.where(x > 0, x, -x), abs(a)), (x.softmax(), np.exp(a) / np.exp(a).sum(-1, keepdims=True))]
    for ours, numpys in pairs:
        assert ours.shape == numpys.shape
        np.testing.assert_allclose(ours.numpy(), numpys, rtol=1e-5, atol=1e-6)
    assert x.argmax(1).tolist() == a.argmax(1).tolist()


def test_cross_entropy_counts_what_is_not_ignored():
    logits = leaf([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    loss = spillway.cross_entropy(logits, np.array([2, -100]))
    loss.backward()
    shares = np.exp([1.0, 2.0, 3.0]) / np.exp([1.0, 2.0, 3.0]).sum()
    assert abs(loss.item() + np.log(shares[2])) < 1e-15
    np.testing.assert_allclose(logits.grad.numpy(), [shares - [0, 0, 1], [0, 0, 0]], atol=1e-15)


def test_what_a_graph_refuses():
    w = leaf([1.0])
    loss = (w * 2).sum()
    loss.backward()
    with pytest.raises(spillway.UsageError, match="compute the loss again"):
        loss.backward()
    with pytest.raises(ValueError, match="got a constant"):
        spillway.ones((1,)).backward()
    with pytest.raises(ValueError, match="one number"):
        (w * spillway.ones((3,), "f64")).backward()
    with pytest.raises(spillway.SpillwayError, match=r"\[matmul\] expected .* got f64 \[1\] and f64 \[2\]"):
        w @ spillway.ones((2,), "f64")
    with spillway.no_grad():
        assert not (w * 2).requires_grad
    assert (w * 2).requires_grad
    with pytest.raises(IndexError):
        w[1]


def test_threads_have_graphs_of_their_own():
    w, found = leaf([3.0]), []

    def work():
        mine = leaf([2.0])
        for _ in range(50):
            (mine * mine).sum().backward()
        found.append(mine.grad.tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    loss = (w * w).sum()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loss.backward()
    assert found == [[200.0]] * 4 and w.grad.tolist() == [6.0]


def _in_child(pipe):
    try:
        pipe.send(spillway.ones((2,)).sum().item())
    except spillway.SpillwayError as error:
        pipe.send(str(error))


def test_a_fork_hears_an_exception():
    spillway.ones((2,)).sum()
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(there,))
    child.start()
    assert here.poll(20)
    assert here.recv().startswith("[fork] expected a process that was started afresh")
    child.join()
    assert child.exitcode == 0 and os.getpid()
