"""Values that other readers round, wrap, or die of: each is taken exactly, as PyTorch takes it, or refused with a SpillwayError."""

import copy
import os
import pickle
import random

import numpy as np
import pytest

import spillway

NAN, INF = float("nan"), float("inf")


def leaf(*values):
    return spillway.tensor(list(values), dtype="f64", requires_grad=True)


def endless():
    """A list within itself."""
    found = []
    found.append(found)
    return found


def matrix():
    return spillway.Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.mark.parametrize("call", [
    lambda: spillway.tensor(endless()),
    lambda: spillway.tensor((endless(), endless())),
    lambda: spillway.zeros(endless()),
    lambda: spillway.cat(endless()),
    lambda: spillway.stack([endless()]),
    lambda: spillway.pad(matrix(), endless()),
    lambda: matrix().reshape(endless()),
    lambda: matrix().permute(endless()),
    lambda: matrix().sum(endless()),
    lambda: spillway.cross_entropy(matrix(), endless()),
    lambda: spillway.SGD(endless()),
    lambda: spillway.Model("gpt2-tiny").loss(endless()),
    lambda: spillway.Trainer(model=endless(), out="never"),
])
def test_lists_within_themselves(call):
    with pytest.raises(spillway.SpillwayError):
        call()


def test_rows_within_themselves(tmp_path):
    deep = []
    for _ in range(100000):
        deep = [deep]
    for row in (endless(), deep, {"messages": endless()}, {"input_ids": endless()}):
        with pytest.raises(spillway.SpillwayError):
            spillway.write_rows(tmp_path / "rows.jsonl", [row])
        with pytest.raises(spillway.SpillwayError):
            spillway.write_tokens(tmp_path / "rows.bin", [row])
    assert list(tmp_path.iterdir()) == []


def test_lists_are_one_depth_and_are_not_changed_meanwhile():
    for mixed in ([1, [2]], [[1], 2], [[1, 2], [3]]):
        with pytest.raises(spillway.SpillwayError, match="nested lists"):
            spillway.tensor(mixed)

    class Clears:
        def __float__(self):
            numbers.clear()
            return 1.0

    numbers = [0.5, Clears(), 2.0]
    with pytest.raises(spillway.SpillwayError, match="nested lists"):
        spillway.tensor(numbers)


def test_whole_numbers_are_kept():
    large = 2**53 + 1
    assert spillway.tensor([large, -(2**63)]).tolist() == [large, -(2**63)]
    assert spillway.tensor([large])[0].item() == large and int(spillway.tensor([large])[0]) == large
    assert spillway.tensor([np.int64(large)]).tolist() == [large]
    view = spillway.Tensor(np.array([[large, 1], [2, 3]]))
    assert view.T.tolist() == [[large, 2], [1, 3]]
    assert spillway.tensor(np.array([large, 5])[::-1]).tolist() == [5, large]
    assert (spillway.tensor([large, large - 1]) == large).tolist() == [True, False] and (spillway.tensor([large]) + 1).item() == large + 1
    assert spillway.tensor([0.1], dtype="f64").item() == 0.1  # the number must not be rounded to f32 first
    assert spillway.tensor([0.1]).dtype == "f32" and spillway.tensor([]).dtype == "f32"
    assert (spillway.tensor([True, False]).dtype, spillway.tensor([True, 2]).dtype) == ("bool", "i64")  # types as in torch.tensor()


@pytest.mark.parametrize("call", [
    lambda: spillway.tensor([2**53 + 1], dtype="f64"),
    lambda: spillway.tensor([2**24 + 1], dtype="f32"),
    lambda: spillway.tensor([257], dtype="bf16"),
    lambda: spillway.tensor([2**53 + 1, 0.5]),
    lambda: spillway.tensor([0.5, 2**53 + 1]),
    lambda: spillway.tensor([2**63]),
    lambda: spillway.full((2,), 2**53 + 1, "i64"),
    lambda: spillway.arange(2**53 + 1),
    lambda: spillway.ones((2,)) * (2**53 + 1),
    lambda: spillway.ones((2,)).clamp(2**2000),
    lambda: spillway.zeros((1,)).copy_(np.array([2**53 + 1])),
    lambda: spillway.zeros((1,), "i32").copy_([2.5]),
    lambda: spillway.SGD([leaf(1.0)], lr=2**53 + 1),
    lambda: spillway.tensor([2.5], dtype="i32"),
    lambda: spillway.tensor([NAN], dtype="i64"),
    lambda: spillway.tensor([-1], dtype="u8"),
    lambda: spillway.tensor([2**31], dtype="i32"),
    lambda: spillway.tensor([2.0**63], dtype="f64").to("i64"),
    lambda: spillway.tensor([NAN]).to("i32"),
    lambda: spillway.tensor([INF]).to("u8"),
    lambda: int(spillway.tensor([NAN])),
    lambda: int(spillway.tensor([-INF])),
    lambda: spillway.full((1,), NAN, "i32"),
])
def test_no_number_is_rounded_without_a_word(call):
    with pytest.raises(spillway.SpillwayError):
        call()


def test_to_rounds_as_pytorch_does():
    assert spillway.tensor([2**24 + 1]).to("f32").tolist() == [2**24]
    assert spillway.tensor([2.9, -2.9]).to("i32").tolist() == [2, -2]
    assert spillway.tensor([-0.5]).to("u8").tolist() == [0]
    assert spillway.tensor([0.5, 0.0, NAN]).to("bool").tolist() == [True, False, True]


def test_a_model_takes_no_rounded_weights():
    model = spillway.Model("gpt2-tiny")
    state = {name: p.numpy().copy() for name, p in model.named_parameters()}
    bias = "transformer.ln_f.bias"
    state[bias] = np.arange(128)
    model.load_state_dict(state)
    assert model[bias].tolist() == list(range(128))
    state[bias] = np.full(128, 2**53 + 1)
    with pytest.raises(spillway.SpillwayError, match="rounded"):
        model.load_state_dict(state)


@pytest.mark.parametrize("call", [
    lambda x: x.permute(2**32, 1),  # with wraparound this would be (0, 1)
    lambda x: x.permute(0, 2**64),
    lambda x: x.transpose(2**32, 1),
    lambda x: x.sum(2**32),
    lambda x: x.sum((0, 0)),
    lambda x: x.sum((0, -2)),
    lambda x: x.softmax(2**32 - 1),
    lambda x: x.sum(True),
    lambda x: x.sum(0.0),
    lambda x: x.sum("0"),
    lambda x: x.reshape(2.0, 3),
    lambda x: x.reshape(True, 6),
    lambda x: x.reshape(-1, -1),
    lambda x: x.reshape(2**40, 2**40, -1),
    lambda x: x.reshape(2**62, 4),
    lambda x: x.reshape(-2, -3),
    lambda x: x.topk(2**62),
    lambda x: x.topk(0),
    lambda x: x.topk(1.0),
    lambda x: x[0.0],
    lambda x: x[2**64],
    lambda x: x[:0.5],
    lambda x: x[::-1],
    lambda x: x.dropout(NAN, seed=1),
    lambda x: x.dropout(0.5, seed=-1),
    lambda x: x.dropout(0.5, seed=True),
    lambda x: x.pad([(2**62, 2**62)]),
    lambda x: x.pad([(-1, 0)]),
    lambda x: x.to("f99"),
    lambda x: x.to("cuda:99999999999"),
    lambda x: x.sum(0, "yes"),
    lambda x: x.relu() if x.copy_("x") else None,
    lambda x: spillway.relu("x"),
    lambda x: spillway.conv2d(spillway.ones((1, 1, 3, 3)), spillway.ones((1, 1, 2, 2)), stride=0),
    lambda x: spillway.conv2d(spillway.ones((1, 1, 3, 3)), spillway.ones((1, 1, 2, 2)), padding=2**62),
    lambda x: spillway.conv2d(spillway.ones((1, 1, 3, 3)), spillway.ones((1, 1, 2, 2)), groups=0),
    lambda x: spillway.conv2d(spillway.ones((1, 1, 3, 3)), spillway.ones((1, 1, 2, 2)), dilation=-1),
    lambda x: spillway.max_pool2d(spillway.ones((1, 1, 3, 3)), 0),
    lambda x: spillway.max_pool2d(spillway.ones((1, 1, 3, 3)), 2**63 - 1),
    lambda x: spillway.avg_pool2d(spillway.ones((1, 1, 3, 3)), 2, stride=-1),
    lambda x: spillway.cross_entropy(x, [0, 2**40]),
    lambda x: spillway.cross_entropy(x, [False, True]),
    lambda x: spillway.cross_entropy(x, [0, 3]),
    lambda x: spillway.cross_entropy(x, [0.0, 1.0]),
    lambda x: spillway.cross_entropy(x, [0, 1], reduction="a\0b"),
    lambda x: spillway.cross_entropy(x, [0, 1], ignore_index=2**32 - 100),
    lambda x: spillway.embedding([0, -1], x),
    lambda x: spillway.einsum("ij,\ud800", x, x),
    lambda x: spillway.gelu(x, "\udcff"),
])
def test_arguments_do_not_wrap(call):
    with pytest.raises(spillway.SpillwayError) as error:
        call(matrix())
    assert not isinstance(error.value, spillway.InternalError)


def test_slices_reach_as_far_as_python_goes():
    x, a = spillway.arange(6), np.arange(6)
    for piece in (slice(5, None, 2**63 - 1), slice(5, 2**63, 2**62), slice(-(2**70), 2**70, 3), slice(4, 2), slice(1, 6, 2), slice(None, -1)):
        assert x[piece].tolist() == a[piece].tolist()
    kept = spillway.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert kept.tril(2**63 - 1).tolist() == [[1, 2], [3, 4]] and kept.tril(-(2**63)).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(spillway.SpillwayError):
        kept.triu(2**63)


@pytest.mark.parametrize("shape", [(2**62,), (2**31, 2**31), (2**40, 2**40), (2**63 - 1, 2), (2**59,), (2**50,), (2**45, 2), 2**62])
def test_what_no_machine_has_is_refused(shape):
    for make in (spillway.zeros, spillway.ones, lambda s: spillway.full(s, 1.0), lambda s: spillway.randn(s, seed=1)):
        with pytest.raises(spillway.RefusedError) as error:
            make(shape)
        assert isinstance(error.value, MemoryError) and isinstance(error.value, spillway.SpillwayError)
    with pytest.raises(spillway.SpillwayError):
        spillway.tensor(np.broadcast_to(np.float32(1), (2**40, 2**10)))
    with pytest.raises(spillway.RefusedError):
        spillway.arange(2.0**50)
    for bad in ((-1,), (2, -3), (2**64,), (1,) * 7, (2.0,), (True,), "ab"):
        with pytest.raises(spillway.SpillwayError):
            spillway.zeros(bad)


RULES = [spillway.SGD, spillway.Adam, spillway.AdamW, spillway.Adagrad, spillway.RMSprop, spillway.Lion, spillway.Muon, spillway.Adafactor]


@pytest.mark.parametrize("rule", RULES)
def test_no_parameter_is_moved_twice(rule):
    """PyTorch warns of duplicates and moves them once or twice; here they are refused before anything is moved."""
    p, q = leaf(1.0), leaf(2.0)
    with pytest.raises(spillway.UsageError, match="each parameter once"):
        rule([p, p])
    with pytest.raises(spillway.UsageError, match="each parameter once"):
        rule([q, p, q])
    rule([p])
    with pytest.raises(spillway.UsageError, match="each parameter once"):  # p belongs to an optimizer already
        rule([p, p])
    with pytest.raises(spillway.UsageError, match="each parameter once"):
        rule([{"params": [p]}, {"params": [p], "lr": 0.1}])
    assert p.item() == 1.0


def test_a_models_parameters_are_moved_once():
    """A tied head is one parameter, as in PyTorch's parameters(); the same one twice is refused whichever object it is."""
    tokens = np.arange(24).reshape(2, 12)

    def stepped(choose):
        model = spillway.Model("gpt2-tiny", seed=3)
        assert model.config["tie_word_embeddings"] and len(model.parameters()) == len(set(model.names()))
        optimizer = spillway.SGD(choose(model), lr=0.5)
        before = model["transformer.wte.weight"].numpy().copy()
        model.loss(tokens).backward()
        gradient = model["transformer.wte.weight"].grad.numpy().copy()
        optimizer.step()
        return before - model["transformer.wte.weight"].numpy(), gradient

    for choose in (lambda m: m, lambda m: m.parameters(), lambda m: [m["transformer.wte.weight"]]):
        moved, gradient = stepped(choose)
        np.testing.assert_allclose(moved, 0.5 * gradient, atol=1e-7)
    model = spillway.Model("gpt2-tiny")
    for twice in ([model["transformer.wte.weight"], model["transformer.wte.weight"]], model.parameters() + model.parameters()[:1]):
        with pytest.raises(spillway.UsageError, match="transformer.wte.weight twice"):
            spillway.SGD(twice)


@pytest.mark.parametrize("value", [NAN, INF, -INF, -1.0, "0.1", [0.1], 10**400])
def test_settings_are_checked(value):
    """torch.optim refuses a negative and a NaN learning rate, weight decay, eps and momentum; so is what is not finite here."""
    for rule in RULES:
        for name in ("lr", "weight_decay"):
            with pytest.raises(spillway.SpillwayError):
                rule([leaf(1.0)], **{name: value})
    for rule, name in ((spillway.SGD, "momentum"), (spillway.Adam, "eps"), (spillway.Adagrad, "lr_decay"), (spillway.RMSprop, "alpha"), (spillway.Adafactor, "d")):
        with pytest.raises(spillway.SpillwayError):
            rule([leaf(1.0)], **{name: value})
    for betas in ((value, 0.9), (0.9, value), value, (0.9,), (0.9, 1.0)):
        with pytest.raises(spillway.SpillwayError):
            spillway.AdamW([leaf(1.0)], betas=betas)
    optimizer = spillway.SGD([leaf(1.0)], lr=0.1)
    with pytest.raises(spillway.SpillwayError):
        optimizer.lr = value
    assert optimizer.lr == 0.1
    with pytest.raises(spillway.SpillwayError):
        optimizer.step(gradient_scale=value) if value in (INF, -INF) else optimizer.step(max_norm=value)
    with pytest.raises(spillway.SpillwayError):
        spillway.SGD([leaf(1.0)], nesterov=1, momentum=0.9)


@pytest.mark.parametrize("rate", [NAN, INF, -1.0])
def test_a_trainer_refuses_such_rates(flags, rate):
    with pytest.raises(spillway.SpillwayError):
        spillway.Trainer(**{**flags, "learning_rate": rate}).train(log=lambda line: None)
    assert not flags["out"].exists()


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "nobody/\ud83d", b"a\0b"])
def test_names_with_nulls_and_half_characters(tmp_path, name):
    model, optimizer = spillway.Model("gpt2-tiny"), spillway.SGD([leaf(1.0)])
    place = os.fspath(tmp_path / "x") + name if isinstance(name, str) else os.fsencode(tmp_path) + name
    calls = [
        lambda: spillway.Model(name), lambda: spillway.Trainer(model=name, out="never"), lambda: spillway.Trainer(**{"out": name}),
        lambda: model.save(place), lambda: optimizer.save(place), lambda: optimizer.load(place), lambda: spillway.write_tokens(place, [[1]]),
        lambda: spillway.status(place), lambda: spillway.command("inspect", place), lambda: spillway.plan(model=name),
        lambda: spillway.Trainer(data=[[1, 2]], out=place, model="gpt2-tiny"),
    ]
    if isinstance(name, str):
        calls += [lambda: model[name], lambda: model.freeze(name), lambda: model.load_state_dict({name: 1}), lambda: spillway.zeros((1,), name),
                  lambda: spillway.zeros((1,), device=name), lambda: spillway.Trainer(**{name: 1}),
                  lambda: spillway.write_rows(place + ".jsonl", [[1]])]
    for call in calls:
        with pytest.raises(spillway.SpillwayError) as error:
            call()
        assert not isinstance(error.value, spillway.InternalError)
    assert list(tmp_path.iterdir()) == []


def test_paths_are_the_systems_bytes(tmp_path):
    """Names that are no UTF-8, which Python spells with surrogates of its own, name files as in open()."""
    name = os.fsdecode(b"m\xff\xfe")
    spillway.Model("gpt2-tiny", seed=2).save(tmp_path / name)
    assert os.listdir(os.fsencode(tmp_path)) == [b"m\xff\xfe"]
    again = spillway.Model(tmp_path / name)
    assert np.array_equal(again["transformer.wte.weight"].numpy(), spillway.Model("gpt2-tiny", seed=2)["transformer.wte.weight"].numpy())
    assert spillway.write_tokens(tmp_path / os.fsdecode(b"\xff.bin"), [[1, 2]]) and (os.fsencode(tmp_path) + b"/\xff.bin")


def test_the_systems_refusals_are_ours(tmp_path):
    (tmp_path / "file").write_text("x")
    model, optimizer = spillway.Model("gpt2-tiny"), spillway.SGD([leaf(1.0)])
    for place in (tmp_path / "file" / "below", tmp_path / ("n" * 300), tmp_path):
        calls = [lambda: spillway.write_tokens(place, [[1]]), lambda: optimizer.save(place), lambda: optimizer.load(place),
                 lambda: spillway.write_rows(place / "x.jsonl" / "y.jsonl", [[1]])]
        if place != tmp_path:
            calls.append(lambda: model.save(place))
        for call in calls:
            with pytest.raises(spillway.SpillwayError) as error:
                call()
            assert not isinstance(error.value, spillway.InternalError), error.value
    assert (tmp_path / "file").read_text() == "x"


class Copied:
    """Exports one capsule, again and again."""

    def __init__(self, array, **how):
        self.capsule = array.__dlpack__(**how)
        self.device = array.__dlpack_device__()

    def __dlpack__(self, **how):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def test_capsules_are_used_once():
    for make in (lambda: np.arange(3.0), lambda: spillway.arange(3, dtype="f64")):
        for use in (spillway.from_dlpack, spillway.Tensor, spillway.tensor):
            capsule = make().__dlpack__()
            assert use(capsule).tolist() == [0, 1, 2]
            with pytest.raises(spillway.SpillwayError, match="DLPack"):
                use(capsule)
            twice = Copied(make())
            assert use(twice).tolist() == [0, 1, 2]
    for nothing in (7, object(), "dltensor"):
        with pytest.raises(spillway.SpillwayError):
            spillway.from_dlpack(nothing)


def test_a_tensor_is_exported_as_often_as_asked():
    tensor = spillway.arange(3)
    capsules = [tensor.__dlpack__() for _ in range(3)]
    views = [spillway.from_dlpack(capsule) for capsule in capsules]
    del capsules[:]
    tensor.copy_([7, 8, 9])
    assert [view.tolist() for view in views] == [[7, 8, 9]] * 3 and len({view.data_ptr() for view in views}) == 1


def test_arrays_of_any_making():
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (a[::-1], a[:, ::-2], a.T, a[:, :0], a[..., 1:3], np.broadcast_to(a[0, 0], (3, 4)), np.float32(3) * np.ones(()), a[:0]):
        assert spillway.tensor(view).tolist() == view.tolist()
        assert spillway.tensor(view).shape == view.shape
    frozen = a.copy()
    frozen.flags.writeable = False
    assert spillway.tensor(frozen).tolist() == a.tolist()
    swapped = a.astype(a.dtype.newbyteorder())
    records = np.zeros(2, [("a", "f4"), ("b", "f4")])
    for refused in (swapped, records, records.astype(object), np.array(["a"]), np.zeros(2, "M8[s]"), np.zeros(2, np.complex64), np.zeros(2, np.longdouble)):
        for use in (spillway.tensor, spillway.Tensor):
            with pytest.raises(spillway.SpillwayError):
                use(refused)
    odd = np.zeros(9, np.uint8)[1:].view(np.float32)
    with pytest.raises(spillway.SpillwayError, match="multiples of their size"):
        spillway.Tensor(odd)
    assert spillway.tensor(odd).tolist() == [0, 0]
    for refused in (a[::-1], a[:, ::-2], a.T, frozen):
        with pytest.raises(spillway.SpillwayError):
            spillway.Tensor(refused)


def test_tokens_out_of_range(tmp_path):
    class Ends(Exception):
        pass

    def ends(kind):
        yield [1, 2]
        raise kind("here")

    def row_ends():
        yield 1
        raise ValueError("a row's own")

    for rows in ([[2**32]], [[-1]], [[1.0]], [[True]], [["1"]], [b"ab"], ["ab"], [[[1]]], [None], [7], [{"ids": [1]}], [], 7, None, "rows", np.array(1.5), [np.array([0.5])]):
        with pytest.raises(spillway.SpillwayError):
            spillway.write_tokens(tmp_path / "t.bin", rows)
    for kind in (Ends, OSError, ValueError, KeyboardInterrupt, SystemExit):  # exceptions of the user's iterator pass through unchanged
        with pytest.raises(kind, match="here"):
            spillway.write_tokens(tmp_path / "t.bin", ends(kind))
    with pytest.raises(ValueError, match="a row's own"):
        spillway.write_tokens(tmp_path / "t.bin", [row_ends()])
    assert list(tmp_path.iterdir()) == []
    spillway.write_tokens(tmp_path / "t.bin", [[0, 2**32 - 1], (i for i in range(3)), np.arange(2), range(2)])
    assert np.fromfile(tmp_path / "t.bin", "<u4")[256:].tolist() == [0, 2**32 - 1, 0, 1, 2, 0, 1, 0, 1]
    with pytest.raises(spillway.SpillwayError):
        spillway.Trainer(model="gpt2-tiny", data=tmp_path / "t.bin", sequence_length=2, steps=1, out=tmp_path / "run", tensorboard="off").train(log=lambda line: None)


def test_a_file_that_came_meanwhile_stays(tmp_path):
    path = tmp_path / "t.bin"

    def rows(then):
        yield [1]
        then()

    with pytest.raises(spillway.SpillwayError, match="meanwhile"):
        spillway.write_tokens(path, rows(lambda: path.write_text("another's")))
    assert path.read_text() == "another's"
    with pytest.raises(spillway.SpillwayError, match="meanwhile"):
        spillway.write_tokens(path, rows(lambda: (path.unlink(), path.write_text("a third's"))))
    assert path.read_text() == "a third's"
    (tmp_path / "t.bin.partial-1").write_text("of a dead process")
    spillway.write_tokens(path, [[1, 2]])
    assert [p.name for p in tmp_path.iterdir()] == ["t.bin"] and path.stat().st_size == 1032
    with pytest.raises(spillway.SpillwayError, match="two at once"):
        spillway.write_tokens(path, rows(lambda: spillway.write_tokens(path, [[3]])))
    assert [p.name for p in tmp_path.iterdir()] == ["t.bin"] and path.stat().st_size == 1032


def test_copies_and_pickles_are_refused_in_words(flags):
    model = spillway.Model("gpt2-tiny")
    steps = []
    trainer = spillway.Trainer(**{**flags, "steps": 1})
    trainer.train(steps.append, log=lambda line: None)
    for thing in (model, spillway.SGD(model), spillway.no_grad(), model.tokenizer, trainer, steps[0]):
        for use in (copy.copy, copy.deepcopy, pickle.dumps):
            if thing is trainer and use is copy.copy:
                continue  # a shallow copy is a second name for the same training
            with pytest.raises(spillway.SpillwayError, match=r"\[copy\] expected"):
                use(thing)


@pytest.mark.filterwarnings("ignore:nanobind")
def test_half_made_objects_are_refused():
    class Mine(spillway.Model):
        def __init__(self):
            pass

    uses = {spillway.Tensor: lambda x: x.shape, spillway.Model: lambda x: x.loss([[1]]), spillway.SGD: lambda x: x.step(), spillway.StepEvent: lambda x: x.loss}
    for kind, use in uses.items():
        with pytest.raises(TypeError):
            use(kind.__new__(kind))
    with pytest.raises(TypeError):
        Mine().names()
    tensor = spillway.ones((2,))
    with pytest.raises(TypeError):
        tensor.__init__(np.zeros(3, np.float32))
    assert tensor.tolist() == [1, 1]


def test_anything_anywhere():
    """4,000 calls with arguments drawn from hostile ones: results, SpillwayErrors, or Python's TypeError for a call that no signature has."""
    draw = random.Random(1)

    class Odd:
        def __len__(self):
            return 3

        def __getitem__(self, place):
            return [1, 2, 3][place]

        def __index__(self):
            raise RuntimeError("index")

    values = [0, 1, -1, 2, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**64, 2**200, 0.5, 1.0, -0.0, NAN, INF, -INF, 5e-324, True, False, None, "", "f32",
              "mean", "\ud800", "a\0b", "ij,jk->ik", "i" * 10000, b"x", [], [1], [1, 2], [[1, 2], [3, 4]], (2, 3), (2**31, 2**31), (2**62,), (-1,), (-1, -1), (0, 2**62),
              [2.5], endless(), (endless(),), [NAN], [[1], [1, 2]], {}, set(), object(), Odd(), slice(None), slice(2**62, None, 2**62), ..., (0, ...), range(10**12),
              np.float32(2.5), np.int64(2**53 + 1), np.zeros(0), np.zeros((2, 0)), np.zeros((2, 3)).T, np.zeros(3, ">f4"), np.zeros(3, object), np.array("a"),
              np.broadcast_to(np.float32(1), (4, 4)), np.arange(4)[::-1], np.bool_(True), np.zeros((1,) * 7)]
    tensors = [matrix(), spillway.zeros((0,)), spillway.zeros((2, 2), "i64"), spillway.ones((3, 3)).requires_grad_(), spillway.tensor(3.0), spillway.tensor([True]),
               spillway.tensor([1.5], dtype="bf16"), spillway.ones((1, 1, 4, 4))]
    functions = [getattr(spillway, name) for name in dir(spillway._core) if name[0] != "_" and name[0].islower() and name not in ("set_threads", "no_grad")]
    methods = [name for name in dir(spillway.Tensor) if name[0] != "_" and callable(getattr(spillway.Tensor, name)) and name != "cuda"]
    methods += ["__add__", "__rsub__", "__mul__", "__pow__", "__matmul__", "__eq__", "__lt__", "__getitem__"]
    kinds = set()
    for number in range(4000):
        arguments = [draw.choice(values + 2 * tensors) for _ in range(draw.choice([0, 1, 1, 2, 2, 3, 4]))]
        call = draw.choice(functions) if number % 2 else getattr(draw.choice(tensors), draw.choice(methods))
        try:
            call(*arguments)
            kinds.add("fine")
        except spillway.InternalError as error:
            pytest.fail(f"{call} {arguments!r}: {error}")
        except spillway.SpillwayError as error:
            kinds.add(type(error).__name__)
        except TypeError as error:
            assert "arguments" in str(error), (call, arguments, error)
    assert {"fine", "UsageError", "UsageTypeError", "UsageIndexError", "RefusedError"} <= kinds
