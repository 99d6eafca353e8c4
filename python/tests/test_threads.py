"""Several threads on the same tensors, models, optimizers and runs: each call has its turn, and what cannot be is a SpillwayError."""

import collections
import contextlib
import gc
import json
import os
import signal
import struct
import threading
import weakref

import numpy as np
import pytest

import spillway

TOKENS = np.arange(24).reshape(2, 12)


def quiet(line):
    pass


def leaf(*values):
    return spillway.tensor(list(values), dtype="f64", requires_grad=True)


def together(*works):
    """Runs all at once, each on a thread of its own; raises what the first of them raised."""
    ready, raised = threading.Barrier(len(works)), []

    def work(one):
        try:
            ready.wait(20)
            one()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def test_backward_of_four_threads_onto_one_tensor():
    """One goes over the graph, the others hear that it was gone over; the gradient is that of one."""
    for size in (3, 200000):
        w = spillway.ones((size,), "f64").requires_grad_()
        for _ in range(30):
            loss, outcomes = (w * w).sum(), collections.Counter()

            def work():
                try:
                    loss.backward()
                    outcomes["done"] += 1
                except spillway.UsageError as error:
                    assert "[backward]" in str(error)
                    outcomes["refused"] += 1

            together(*[work] * 4)
            assert outcomes == {"done": 1, "refused": 3}
            assert w.grad.numpy()[0] == 2 and w.grad.numpy()[-1] == 2
            w.grad = None


def test_gradients_of_four_threads_add_up():
    """Whole numbers, whose sums are exact in any order."""
    shared = spillway.ones((70000,), "f64").requires_grad_()
    mine = [leaf(1.0) for _ in range(4)]

    def work(number):
        for step in range(25):
            ((shared * (number + 1)).sum() + (mine[number] * step).sum()).backward()

    together(*[lambda number=number: work(number) for number in range(4)])
    assert set(shared.grad.numpy()) == {25.0 * (1 + 2 + 3 + 4)}
    assert [one.grad.item() for one in mine] == [300.0] * 4


def test_four_threads_hammer_one_model(tmp_path):
    model = spillway.Model("gpt2-tiny", seed=1)
    optimizer = spillway.AdamW(model, lr=1e-3)
    name = "transformer.wte.weight"
    state = {key: value.numpy().copy() for key, value in model.named_parameters()}
    refused = []

    def step(number):
        loss = model.loss(TOKENS)
        loss.backward()
        optimizer.step(max_norm=1.0)
        assert np.isfinite(loss.item())

    def look(number):
        assert model.logits(TOKENS).shape == (2, 256)
        gradient = model[name].grad
        assert gradient is None or gradient.shape == (256, 128)
        assert repr(model[name]) and optimizer.gradient_norm() >= 0

    def write(number):
        optimizer.lr = 1e-3 / (1 + number % 3)
        model[name].detach().copy_(state[name])
        model.load_state_dict(state, share=number % 2 == 0)
        optimizer.zero_grad()
        model.freeze(name, number % 2 == 0)
        spillway.set_threads(1 + number % 3)

    def keep(number):
        model.save(tmp_path / "model")
        optimizer.save(tmp_path / "optimizer")
        optimizer.load(tmp_path / "optimizer")
        gc.collect()

    def work(call, times):
        for number in range(times):
            try:
                call(number)
            except spillway.InternalError:
                raise
            except spillway.SpillwayError as error:  # for example because another thread wrote weights between loss() and backward()
                refused.append(str(error))

    try:
        together(lambda: work(step, 12), lambda: work(look, 12), lambda: work(write, 12), lambda: work(keep, 6))
    finally:
        spillway.set_threads(2)
    assert all("modified by an inplace operation" in text for text in refused), refused
    model.load_state_dict(state)
    step(0)
    assert np.array_equal(spillway.Model(tmp_path / "model")[name].numpy().shape, (256, 128))


def read_state(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {key: np.frombuffer(data[8 + size :][slice(*value["data_offsets"])], np.float64) for key, value in header.items()}


def test_what_is_saved_is_of_one_moment(tmp_path):
    """Two tensors with the same gradients have the same momenta after each step: the file never has one of a step and one of another."""
    p, q = (spillway.ones((50000,), "f64").requires_grad_() for _ in range(2))
    optimizer, stop = spillway.SGD([p, q], lr=1e-3, momentum=0.9), threading.Event()
    seen = set()

    def train():
        while not stop.is_set():
            ((p * p).sum() + (q * q).sum()).backward()
            optimizer.step()
            optimizer.zero_grad()

    def save():
        try:
            for _ in range(30):
                optimizer.save(tmp_path / "state")
                first, second = read_state(tmp_path / "state").values()
                assert np.array_equal(first, second)
                seen.add(first[0])
        finally:
            stop.set()

    together(train, save)
    assert len(seen) > 1


def test_turns_are_given_in_order():
    """A thread that computes without a pause does not keep others from their turns."""
    a, stop, count = spillway.randn((300, 300), seed=1), threading.Event(), [0]

    def busy():
        while not stop.is_set():
            a @ a
            count[0] += 1

    def other():
        try:
            for _ in range(50):
                spillway.ones((2,)).sum()  # takes two turns at the library
        finally:
            stop.set()

    together(busy, other)
    assert count[0] < 1000


def test_no_grad_is_a_threads_own():
    silence = spillway.no_grad()
    silence.__enter__()
    with pytest.raises(spillway.UsageError, match="no_grad"):
        together(silence.__exit__)
    heard = []
    together(lambda: heard.append((leaf(1.0) * 2).requires_grad))
    assert heard == [True] and not (leaf(1.0) * 2).requires_grad
    silence.__exit__()
    assert (leaf(1.0) * 2).requires_grad
    with pytest.raises(spillway.UsageError, match="no_grad"):
        silence.__exit__()
    spillway.no_grad().__enter__()  # never left; the object is deleted at once
    gc.collect()
    assert (leaf(1.0) * 2).requires_grad


def test_what_python_does_when_memory_is_given_back():
    """The last view of an array ends within backward(); what runs then computes, on the same graph's leaf too."""

    class Kept(np.ndarray):
        pass

    w, heard = leaf(2.0, 3.0), []
    for _ in range(20):
        array = np.ones(2).view(Kept)
        weakref.finalize(array, lambda: heard.append((w * 3).sum().item()))
        loss = (w * spillway.Tensor(array)).sum()
        del array
        together(loss.backward)
        del loss
    gc.collect()
    assert heard == [15.0] * 20 and w.grad.tolist() == [20, 20]


def test_objects_die_on_any_thread():
    tensors = collections.deque()
    w = spillway.ones((1000,)).requires_grad_()

    def make():
        for _ in range(300):
            tensors.append((w * spillway.Tensor(np.ones(1000, np.float32))).sum())
            tensors.append(spillway.Tensor(np.ones(1000, np.float32)).numpy())

    def drop():
        for _ in range(600):
            with contextlib.suppress(IndexError):
                tensors.popleft()
            gc.collect(0)

    together(make, make, drop, drop)


def test_a_trainer_trains_once_at_a_time(flags):
    trainer = spillway.Trainer(**flags)
    inside, over, refused = threading.Event(), threading.Event(), []

    def again():
        try:
            trainer.train(log=quiet)
        except spillway.UsageError as error:
            refused.append(str(error))

    def hear(event):
        if event.step == 2:
            again()  # a call from inside the callback
            inside.set()
            assert over.wait(20)

    def other():
        assert inside.wait(20)
        again()
        over.set()

    results = []
    together(lambda: results.append(trainer.train(hear, log=quiet)), other)
    assert results[0].finished and len(refused) == 2 and all("[train]" in text for text in refused)
    assert trainer.train(log=quiet).finished


def test_two_trainers_of_one_folder(flags):
    """One trains, the other is refused; nothing of the run is lost."""
    entered, over = threading.Event(), threading.Event()

    def hear(event):
        entered.set()
        assert over.wait(20)

    def other():
        assert entered.wait(20)
        try:
            with pytest.raises(spillway.SpillwayError):
                spillway.Trainer(**flags).train(log=quiet)
        finally:
            over.set()

    results = []
    together(lambda: results.append(spillway.Trainer(**flags).train(hear, log=quiet)), other)
    assert results[0].finished


@pytest.mark.parametrize("where, kind", [
    ("on_step", RuntimeError), ("on_validate", KeyboardInterrupt), ("on_save", SystemExit), ("log", spillway.DataError), ("on_step", StopIteration),
])
def test_what_any_callback_raises(flags, where, kind):
    """It comes out as itself, and the same Trainer goes on."""

    def fail(*event):
        raise kind("mine")

    trainer = spillway.Trainer(**{**flags, "validation_fraction": 0.1, "validate_every": 1, "steps": 2, "checkpoint_every": 1})
    with pytest.raises(kind, match="mine"):
        trainer.train(**{"log": quiet, where: fail})
    assert trainer.train(log=quiet).finished


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_signals_handler_may_raise(flags, ranks):
    class Mine(Exception):
        pass

    def handler(number, frame):
        raise Mine("handler")

    flags.update(ranks=ranks, communicator="local", device_memory="128MiB", steps=50) if ranks > 1 else None
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Mine, match="handler"):
            spillway.Trainer(**flags).train(lambda event: os.kill(os.getpid(), signal.SIGUSR1) if event.step == 2 else None, log=quiet)
            while True:  # with several ranks the signal may be handled only after all ranks have ended
                pass
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_callbacks_that_are_none(flags):
    for wrong in (dict(on_step=7), dict(on_save="x"), dict(patience=1.5), dict(keep_best="yes"), dict(patience=-1)):
        with pytest.raises(spillway.SpillwayError):
            spillway.Trainer(**flags).train(**{"log": quiet, **wrong})
    assert not flags["out"].exists()
