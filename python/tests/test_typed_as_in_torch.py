"""Lines that a PyTorch user types, beside what PyTorch gives: typed_lines.json has it, and PyTorch itself where there is one."""

import json
import pathlib
import random
import os

import numpy as np
import pytest
import random_calls
import spillway
import typed_lines

GIVES = json.loads((pathlib.Path(__file__).parent / "typed_lines.json").read_text())


def as_read(value):
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("line", typed_lines.LINES)
def test_a_line_gives_what_it_gives_in_pytorch(line):
    assert as_read(typed_lines.run(line, spillway, np)) == GIVES[line]


def test_the_lines_are_pytorchs():
    torch = pytest.importorskip("torch")
    assert {line: as_read(typed_lines.run(line, torch, np)) for line in typed_lines.LINES} == GIVES


def test_random_calls_give_what_they_give_in_pytorch():
    """SPILLWAY_RANDOM_CALLS=2000 makes more of them, SPILLWAY_RANDOM_SEED others."""
    torch = pytest.importorskip("torch")
    draw = random.Random(int(os.environ.get("SPILLWAY_RANDOM_SEED", "44")))
    for _ in range(int(os.environ.get("SPILLWAY_RANDOM_CALLS", "200"))):
        expression = random_calls.call(draw)
        expected = random_calls.result(expression, torch)
        if random_calls.is_unknown(expected):
            continue
        found = random_calls.result(expression, spillway)
        if random_calls.is_refused(found) or random_calls.is_exact(expression):
            continue
        assert random_calls.same(found, expected), (expression, found, expected)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda x: spillway.relu(), r"\[relu\] expected relu\(input: Tensor\) -> Tensor, got arguments of the types \(\)"),
        (lambda x: x.sum(1, False, 3), r"\[sum\] expected sum\("),
        (lambda x: x.softmax(dims=1), r"\[softmax\] expected softmax\(.*dims"),
        (lambda x: x.reshape("ab"), "expected whole numbers, got str"),
        (lambda x: spillway.relu([1.0]), "expected a Tensor, got list"),
        (lambda x: x.__setitem__(0, "a"), "expected a number, a tensor, an array or a list, got str"),
        (lambda x: None in x, "expected a number or a tensor, got NoneType"),
        (lambda x: x.add("a"), r"\[add\] expected add\("),
        (lambda x: spillway.Model("gpt2-tiny").freeze(), r"\[freeze\] expected freeze\("),
    ],
)
def test_wrong_arguments_are_said_in_words(call, words):
    with pytest.raises(spillway.UsageError, match=words) as error:
        call(spillway.ones(2, 3))
    assert isinstance(error.value, TypeError) and "incompatible" not in str(error.value)


def test_several_losses_share_weights():
    w = spillway.tensor([2.0, 3.0], requires_grad=True)
    first, second = (w * w).sum(), (w * 5).sum()
    first.backward()
    second.backward()
    assert w.grad.tolist() == [9.0, 11.0]
    h = w * w
    h.sum().backward(retain_graph=True)
    (h * 2).sum().backward()
    assert w.grad.tolist() == [9.0 + 4 + 8, 11.0 + 6 + 12]
    loss, other = h.sum(), (w * w).sum()
    with pytest.raises(spillway.UsageError, match="got a constant"):
        loss.backward()  # raises, because the graph of h was released
    assert other.requires_grad


def test_a_models_loss_can_be_used_twice():
    model, tokens = spillway.Model("gpt2-tiny"), np.arange(16).reshape(2, 8)
    model.loss(tokens).backward()
    once = model["transformer.wte.weight"].grad.numpy().copy()
    model.zero_grad()
    loss = model.loss(tokens)
    loss.backward(retain_graph=True)
    loss.backward()
    np.testing.assert_array_equal(model["transformer.wte.weight"].grad.numpy(), 2 * once)
    model.zero_grad()
    first, second = model.loss(tokens), model.loss(tokens + 1)
    second.backward()
    first.backward()
    assert model["transformer.wte.weight"].grad is not None


def test_what_nobody_holds_is_not_kept_by_other_losses():
    """A recorded tensor that is never used does not keep its graph, as in PyTorch."""
    w = spillway.tensor([2.0], requires_grad=True)
    for _ in range(3):
        unused = w * 3
        loss = (w * w).sum()
        del unused
        loss.backward()
        with pytest.raises(spillway.UsageError, match="a second time"):
            loss.backward()


def test_views_share_memory_and_copies_say_that_they_do_not():
    x = spillway.zeros(2, 3)
    x[0].fill_(1)
    x.T[2].add_(5)
    x.view(-1)[1:2].mul_(7)
    assert x.tolist() == [[1, 7, 6], [0, 0, 5]]
    with pytest.raises(spillway.UsageError, match=r"write\s+x\[key\] = values"):
        x[:, ::2].zero_()
    x[:, ::2] += 1
    assert x.tolist() == [[2, 7, 7], [1, 0, 6]]
