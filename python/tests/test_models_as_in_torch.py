"""Lines that users of PyTorch and transformers type without the docs: each works as there, or its error says what to write instead.
tests/peers/modules.py compares the numbers with PyTorch's."""

import copy
import json
import math
import pickle
import re

import numpy as np
import pytest

import spillway
from spillway import nn

TOKENS = np.random.default_rng(1).integers(0, 256, (2, 12))


def quiet(line):
    pass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 2)

    def forward(self, x):
        return self.fc2(spillway.relu(self.fc1(x)))


# Lines that users type, by subject. Each asserts what PyTorch or transformers give.
LINES = {
    "logits": "assert model(tokens).shape == (2, 12, 256) and model(tokens).requires_grad",
    "own loss": "spillway.cross_entropy(model(tokens)[:, :-1].reshape(-1, 256), tokens[:, 1:].reshape(-1)).backward(); assert model.parameters()",
    "generate": "assert model.generate(tokens, max_new_tokens=3, do_sample=False).shape == (2, 15)",
    "sample": "assert model.generate(tokens, max_new_tokens=3, do_sample=True, temperature=0.7, top_k=5, top_p=0.9, seed=1).shape == (2, 15)",
    "tokenizer": "assert model.tokenizer.decode(model.tokenizer.encode('how are you')) == 'how are you'",
    "tokenizer call": "assert model(model.tokenizer('abc', return_tensors='pt')['input_ids']).shape == (1, 3, 256)",
    "train and eval": "assert model.eval() is model and not model.training and model.train().training",
    "state_dict": "model.load_state_dict(model.state_dict())",
    "strict": "model.load_state_dict({}, strict=False)",
    "named_parameters": "assert dict(model.named_parameters())['transformer.wte.weight'].shape == (256, 128)",
    "count": "assert sum(p.numel() for p in model.parameters()) > 1e5",
    "freeze": "for p in model.parameters(): p.requires_grad = False",
    "to": "assert model.to('cpu') is model and next(iter(model.parameters())).device == 'cpu'",
    "module": "assert net(x).shape == (3, 2) and [n for n, _ in net.named_parameters()] == ['fc1.weight', 'fc1.bias', 'fc2.weight', 'fc2.bias']",
    "sequential": "m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Dropout(0.1), nn.Linear(8, 1)); assert m(x).shape == (3, 1) and m[0].weight.shape == (8, 4)",
    "module list": "l = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]); l.append(nn.GELU()); assert len(l) == 4 and len(list(l.parameters())) == 6",
    "parameter": "assert nn.Parameter(spillway.zeros((2, 2))).requires_grad",
    "hook": "seen = []; net.fc1.register_forward_hook(lambda m, i, o: seen.append(o.shape)).remove(); net(x); assert seen == []",
    "module state": "net.load_state_dict({k: v * 0 for k, v in net.state_dict().items()}); assert net.fc1.weight.sum().item() == 0",
    "import nn": "import spillway.nn as nn, spillway.nn.functional as F; assert F.relu(x).shape == (3, 4)",
    "optim": "opt = spillway.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)",
    "groups": "opt = spillway.optim.SGD([{'params': net.fc1.parameters()}, {'params': [net.fc2.weight], 'lr': 0.5}], lr=0.1); assert [g['lr'] for g in opt.param_groups] == [0.1, 0.5]",
    "set lr": "opt = spillway.AdamW(net.parameters(), lr=1e-3)\nfor g in opt.param_groups: g['lr'] = 1e-4",
    "zero_grad": "opt = spillway.AdamW(net.parameters()); net(x).sum().backward(); opt.step(); opt.zero_grad(set_to_none=True); assert net.fc1.weight.grad is None",
    "optimizer state": "opt = spillway.AdamW(net.parameters()); net(x).sum().backward(); opt.step(); assert opt.state_dict()['state'][0]['exp_avg'].shape == (8, 4); opt.load_state_dict(opt.state_dict())",
    "clip": "net(x).sum().backward(); assert spillway.nn.utils.clip_grad_norm_(net.parameters(), 1.0) > 0",
    "scheduler": "from spillway.optim.lr_scheduler import CosineAnnealingLR; opt = spillway.AdamW(net.parameters()); s = CosineAnnealingLR(opt, T_max=10); opt.step(); s.step(); assert s.get_last_lr()[0] < 1e-3",
    "backbone": "both = list(model.parameters()) + list(net.parameters()); spillway.AdamW(both, lr=1e-3)",
    "history": "r = trainer.train(log=quiet, progress=False); assert len(r.losses) == 4 and r.history[1]['loss'] == r.losses[1] and r.validations == []",
    "stop": "r = trainer.train(lambda event: False, log=quiet, progress=False); assert not r.finished and len(r.losses) == 2",
}

# Lines of PyTorch that Spillway writes in another way, with the words of the error message that say how.
INSTEAD = {
    "labels": ("model(tokens, labels=tokens)", r"model.loss\(tokens, targets\)"),
    "padding": ("model(tokens, attention_mask=tokens * 0)", "equally many tokens"),
    "long": ("model.generate(tokens, max_new_tokens=10**6)", "at most .* after a prompt of 12 tokens"),
    "strict": ("model.load_state_dict({})", "transformer.wte.weight.*strict=False"),
    "other names": ("net.load_state_dict({**net.state_dict(), 'fc3.weight': 0})", "got fc3.weight"),
    "shape": ("net.load_state_dict({**net.state_dict(), 'fc1.bias': np.zeros(3)})", r"fc1.bias: expected shape \(8,\), got \(3,\)"),
    "zeros": ("spillway.AdamW(net).zero_grad(set_to_none=False)", "set_to_none"),
    "group": ("spillway.AdamW([{'params': [net.fc1.weight], 'learning_rate': 1}])", "among lr, betas.*got learning_rate"),
    "no momentum": ("spillway.optim.lr_scheduler.OneCycleLR(spillway.SGD(net), 0.1, 10)", "cycle_momentum=False"),
    "train_dataset": ("spillway.Trainer(model='gpt2-tiny', train_dataset=[[1]], out='x')", "write data=rows"),
    "args": ("spillway.Trainer(model='gpt2-tiny', args={}, out='x')", "from_training_arguments"),
    "a Model": ("spillway.Trainer(model=model, data='t.txt', out='x')", r"model.save\(folder\)"),
    "DatasetDict": ("spillway.Trainer(model='gpt2-tiny', data={'train': [[1]], 'test': [[1]]}, out='x')", r"write data=data\['train'\]"),
    "texts": ("spillway.Trainer(model='gpt2-tiny', data=['how are you', 'fine'], out='x')", r'\[\{"text": text\} for text in texts\]'),
    "a vocabulary": ("nn.Linear(4, 4, device='cuda')", r"to\(device\)"),
}


@pytest.fixture
def names(flags):
    flags.update(steps=4, checkpoint_every=100)
    return dict(spillway=spillway, np=np, nn=nn, tokens=TOKENS, quiet=quiet, model=spillway.Model("gpt2-tiny"), net=Net(),
                x=spillway.randn((3, 4), seed=1), trainer=spillway.Trainer(**flags))


@pytest.mark.parametrize("about", LINES)
def test_lines_that_work(about, names):
    exec(LINES[about], names)


@pytest.mark.parametrize("about", INSTEAD)
def test_lines_whose_errors_say_what_to_write(about, names):
    line, words = INSTEAD[about]
    with pytest.raises(spillway.UsageError, match=words):
        exec(line, names)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.numpy().copy() for name, parameter in model.named_parameters()}


def test_logits_are_those_of_the_loss():
    """The mean cross entropy of the logits, and its gradients, are those of loss(), which never holds all logits."""
    model = spillway.Model("gpt2-tiny", dtype="f64")
    model.eval()
    whole = model.loss(TOKENS)
    wanted = gradients(model, whole)
    logits = model(TOKENS)
    assert logits.dtype == "f64"
    own = spillway.cross_entropy(logits[:, :-1].reshape(-1, 256), TOKENS[:, 1:].reshape(-1))
    assert abs(own.item() - whole.item()) < 1e-12
    for name, gradient in gradients(model, own).items():
        np.testing.assert_allclose(gradient, wanted[name], atol=1e-12, err_msg=name)
    np.testing.assert_allclose(model(TOKENS).numpy()[:, -1], model.logits(TOKENS).numpy(), atol=1e-12)
    with spillway.no_grad():
        assert not model(TOKENS).requires_grad
    images = np.random.default_rng(0).normal(size=(2, 1, 28, 28)).astype(np.float32)
    lenet = spillway.Model("lenet")
    np.testing.assert_allclose(lenet(images).numpy(), lenet.logits(images).numpy(), atol=1e-6)
    lenet(images).sum().backward()
    assert all(parameter.grad is not None for parameter in lenet.parameters())


def test_generate_is_the_loop_over_logits():
    model = spillway.Model("gpt2-tiny", seed=3)
    want = TOKENS.tolist()
    for row in want:
        for _ in range(6):
            row.append(int(model.logits(np.array([row])).numpy().argmax()))
    made = model.generate(TOKENS, max_new_tokens=6)
    assert made.dtype == "i64" and made.tolist() == want
    end = want[0][13]
    short = model.generate(TOKENS[:1], max_new_tokens=6, eos_token_id=end, pad_token_id=7)
    assert short.tolist() == [want[0][: want[0].index(end, 12) + 1]]
    drawn = [model.generate(TOKENS, max_new_tokens=8, do_sample=True, seed=seed).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    spillway.manual_seed(5)
    first = model.generate(TOKENS, do_sample=True).tolist()
    spillway.manual_seed(5)
    assert model.generate(TOKENS, do_sample=True).tolist() == first != model.generate(TOKENS, do_sample=True).tolist()


def test_a_tokenizer_has_the_names_of_transformers(tmp_path):
    tokenizer = spillway.Model("gpt2-tiny").tokenizer
    assert tokenizer.encode("abc") == [97, 98, 99] and tokenizer("abc") == {"input_ids": [97, 98, 99], "attention_mask": [1, 1, 1]}
    assert tokenizer(["ab", "cd"], return_tensors="np")["input_ids"].shape == (2, 2) and len(tokenizer) == tokenizer.vocab_size == 256
    assert tokenizer.batch_decode([[97], [98, 99]]) == ["a", "bc"] and tokenizer.eos_token_id is None
    with pytest.raises(spillway.UsageError, match="equally many tokens, got 1, 2"):
        tokenizer(["a", "bc"], return_tensors="pt")
    vocabulary = {"<end>": 0, "a": 1, "b": 2, "ab": 3}
    (tmp_path / "tokenizer.json").write_text(json.dumps({
        "added_tokens": [{"id": 0, "content": "<end>", "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}],
        "model": {"type": "BPE", "vocab": vocabulary, "merges": ["a b"]}}))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    tokenizer = spillway.Tokenizer(tmp_path)
    assert tokenizer.encode("abba<end>") == [3, 2, 1, 0] and (tokenizer.eos_token, tokenizer.eos_token_id) == ("<end>", 0)
    assert tokenizer.decode([3, 0]) == "ab <end>" and tokenizer.decode(np.array([3, 0]), skip_special_tokens=True) == "ab"
    assert tokenizer.convert_tokens_to_ids("ab") == 3 and tokenizer.convert_ids_to_tokens([1, 3]) == ["a", "ab"]


def test_freezing_and_thawing():
    model = spillway.Model("gpt2-tiny", seed=2)
    optimizer = spillway.SGD(model.parameters(), lr=0.1)
    model.requires_grad_(False)
    assert not model(TOKENS).requires_grad and model.trained() == []
    wpe = model["transformer.wpe.weight"]
    wpe.requires_grad = True
    assert [p.name for p in model.trained()] == [wpe.name] and model[wpe.name].requires_grad
    before = {name: p.numpy().copy() for name, p in model.named_parameters()}
    model.loss(TOKENS).backward()
    optimizer.step()
    assert [name for name, p in model.named_parameters() if not np.array_equal(p.numpy(), before[name])] == [wpe.name]
    net = Net()
    net.fc2.requires_grad_(False)
    optimizer = spillway.SGD(net.parameters(), lr=0.1)
    before = net.fc2.weight.numpy().copy()
    net(spillway.ones((2, 4))).sum().backward()
    optimizer.step()
    assert np.array_equal(net.fc2.weight.numpy(), before) and net.fc2.weight.grad is None
    net.fc2.weight.requires_grad = True
    net(spillway.ones((2, 4))).sum().backward()
    optimizer.step()  # the optimizer begins to update the parameter, with its present gradient
    assert not np.array_equal(net.fc2.weight.numpy(), before)


def test_first_values_have_pytorchs_distributions():
    spillway.manual_seed(0)
    linear, table = nn.Linear(64, 400), nn.Embedding(300, 40)
    for values in (linear.weight.numpy(), linear.bias.numpy()):
        assert np.abs(values).max() <= 1 / 8 and abs(values.std() - 1 / 8 / math.sqrt(3)) < 0.006
    assert abs(table.weight.numpy().std() - 1) < 0.02 and abs(table.weight.numpy().mean()) < 0.03
    spillway.manual_seed(0)
    again = nn.Linear(64, 400)
    assert np.array_equal(again.weight.numpy(), linear.weight.numpy()) and not np.array_equal(nn.Linear(64, 400).weight.numpy(), linear.weight.numpy())
    norm = nn.LayerNorm(3)
    assert norm.weight.tolist() == [1, 1, 1] and norm.bias.tolist() == [0, 0, 0]
    assert "not drawn" not in repr(linear) and repr(nn.Linear(2, 3)) == "Linear(in_features=2, out_features=3, bias=True)"


def test_modules_name_share_and_copy_their_parameters(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4)
            self.layers = nn.ModuleList([nn.Linear(4, 4, bias=False) for _ in range(2)])
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            x = self.embed(ids)
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    net = Tied()
    names = ["embed.weight", "layers.0.weight", "layers.1.weight"]
    assert [name for name, _ in net.named_parameters()] == names and list(net.state_dict()) == [*names, "head.weight"]
    assert [name for name, _ in net.named_modules()] == ["", "embed", "layers", "layers.0", "layers.1", "head"]
    for other in (copy.deepcopy(net), ):
        assert other.head.weight is other.embed.weight and other.embed.weight is not net.embed.weight
        assert np.array_equal(other([[1, 2]]).numpy(), net([[1, 2]]).numpy())
    values = pickle.loads(pickle.dumps(nn.Linear(3, 2).bfloat16().weight))
    assert isinstance(values, nn.Parameter) and values.dtype == "bf16" and values.shape == (2, 3)
    net.double()
    assert net.head.weight is net.embed.weight and net.embed.weight.dtype == "f64"
    loss = net(np.arange(6).reshape(2, 3)).sum()
    loss.backward()
    assert net.embed.weight.grad.shape == (10, 4)
    fresh = Tied()
    missing, unexpected = fresh.load_state_dict({"embed.weight": np.ones((10, 4)), "more": np.ones(1)}, strict=False)
    assert missing == ["layers.0.weight", "layers.1.weight", "head.weight"] and unexpected == ["more"]
    assert fresh.head.weight.numpy().min() == 1
    assert str(nn.Sequential(nn.Linear(1, 2), nn.ReLU())) == (
        "Sequential(\n  (0): Linear(in_features=1, out_features=2, bias=True)\n  (1): ReLU()\n)")


def test_hooks_and_modes():
    net, heard = Net(), []
    before = net.fc1.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 0,))
    after = net.fc1.register_forward_hook(lambda module, inputs, output: heard.append((type(module), float(inputs[0].sum()))))
    net(spillway.ones((1, 4)))
    assert heard == [(nn.Linear, 0.0)]
    before.remove(), after.remove()
    doubled = net.register_forward_hook(lambda module, inputs, output: output * 2)
    y = net(spillway.ones((1, 4))).numpy()
    doubled.remove()
    np.testing.assert_allclose(y, 2 * net(spillway.ones((1, 4))).numpy())
    assert len(heard) == 1
    drop = nn.Sequential(nn.Dropout(0.5))
    x = spillway.ones((100, 100))
    spillway.manual_seed(1)
    masks = [drop(x).numpy() for _ in range(2)]
    assert set(np.unique(masks[0])) == {0, 2} and abs(masks[0].mean() - 1) < 0.05 and not np.array_equal(*masks)
    assert np.array_equal(drop.eval()(x).numpy(), x.numpy()) and not drop[0].training
    spillway.manual_seed(1)
    assert np.array_equal(drop.train()(x).numpy(), masks[0])


class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(2, 8), nn.Dropout(0.0)

    def forward(self, x, batch):
        return self.drop(spillway.tanh(self.linear(batch["question"])))


class Answer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 1)

    def forward(self, x, batch):
        return batch.loss((self.linear(x) - batch["answer"]) ** 2)


def stored(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    return {name: np.frombuffer(data, "<f4", offset=8 + size + one["data_offsets"][0], count=math.prod(one["shape"])).reshape(one["shape"])
            for name, one in header.items() if name != "__metadata__"}


def test_one_class_serves_both_loops(tmp_path):
    """The same Modules step by hand and in a Trainer's run give the same losses, since a run starts with the values that they have."""
    samples = [{"question": [a, b], "answer": [float(a != b)]} for a in (0.0, 1.0) for b in (0.0, 1.0)]
    model = nn.Sequential(Hidden(), nn.Linear(8, 8), nn.Tanh(), Answer())
    by_hand = copy.deepcopy(model)

    class Batch(dict):
        def loss(self, losses):
            return losses.mean()

    batch = Batch({key: spillway.tensor([sample[key] for sample in samples]) for key in ("question", "answer")})
    optimizer = spillway.SGD(by_hand.parameters(), lr=0.1)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        x = by_hand[0](None, batch)
        loss = by_hand[3](by_hand[2](by_hand[1](x)), batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    first = model[1].weight.numpy().copy()
    result = spillway.Trainer(model=model, name="both", data=samples, steps=4, micro_batch_size=2, global_batch_size=4, optimizer="sgd",
                              learning_rate=0.1, warmup_steps=0, lr_schedule="constant", weight_decay=0, gradient_clipping=0, precision="fp32",
                              device="cpu", data_order="sequential", out=tmp_path / "run").train(log=quiet, progress=False)
    np.testing.assert_allclose(result.losses, losses, rtol=1e-5)
    kept = stored(result.checkpoint / "model.safetensors")
    assert sorted(kept) == sorted(name for name, _ in model.named_parameters())
    for name, parameter in by_hand.named_parameters():
        np.testing.assert_allclose(kept[name], parameter.numpy(), atol=1e-6, err_msg=name)
    assert np.array_equal(model[1].weight.numpy(), first)  # the run trained copies, so these weights are unchanged
    model.load_state_dict(kept)
    np.testing.assert_allclose(model[1].weight.numpy(), by_hand[1].weight.numpy(), atol=1e-6)


def adamw(w, g, state, lr, betas=(0.9, 0.999), eps=1e-8, decay=1e-2):
    m, v, t = state
    t += 1
    m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
    w = w * (1 - lr * decay)
    return w - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps), (m, v, t)


def test_groups_have_settings_of_their_own():
    """Against a loop by hand in fp64; lr and weight decay change between steps."""
    net = Net().double()
    x = np.random.default_rng(0).normal(size=(5, 4))
    optimizer = spillway.AdamW([{"params": net.fc1.parameters(), "weight_decay": 0.5}, {"params": net.fc2.parameters(), "lr": 0.1}], lr=0.01)
    states = {name: (0.0, 0.0, 0) for name, _ in net.named_parameters()}
    for step in range(5):
        optimizer.zero_grad()
        (net(spillway.tensor(x)) ** 2).sum().backward()
        if step == 3:
            optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"] = 0.02, 0.1
        wanted = {}
        for name, p in net.named_parameters():
            first, late = name.startswith("fc1"), step >= 3
            decay = (0.1 if late else 0.5) if first else 1e-2
            wanted[name], states[name] = adamw(p.numpy().copy(), p.grad.numpy(), states[name], (0.02 if late else 0.01) if first else 0.1, decay=decay)
        optimizer.step()
        for name, p in net.named_parameters():
            np.testing.assert_allclose(p.numpy(), wanted[name], rtol=1e-9, err_msg=f"{step} {name}")


@pytest.mark.parametrize("rule", [spillway.SGD, spillway.Adam, spillway.AdamW, spillway.Adagrad, spillway.RMSprop, spillway.Lion, spillway.Muon,
                                  spillway.Adafactor])
@pytest.mark.parametrize("by_file", [True, False])
def test_states_are_taken_up_bit_for_bit(rule, by_file, tmp_path):
    """By state_dict() and by a file, over a model and modules of one's own in two groups."""
    settings = dict(momentum=0.9) if rule in (spillway.SGD, spillway.RMSprop) else {}

    def made():
        spillway.manual_seed(3)
        model, net = spillway.Model("gpt2-tiny", seed=1), Net()
        return model, net, rule([{"params": model.parameters()}, {"params": net.parameters(), "lr": 0.02}], lr=0.01, **settings)

    def step(model, net, optimizer):
        optimizer.zero_grad()
        x = model(TOKENS)[:, -1, :4]
        spillway.cross_entropy(net(x), [0, 1]).backward()
        optimizer.step()

    one = made()
    for _ in range(2):
        step(*one)
    other = made()
    other[0].load_state_dict(one[0].state_dict()), other[1].load_state_dict(one[1].state_dict())
    if by_file:
        one[2].save(tmp_path / "state.safetensors")
        other[2].load(tmp_path / "state.safetensors")
    else:
        state = one[2].state_dict()
        assert [group["params"][0] for group in state["param_groups"]] == [0, len(one[0].parameters())] and state["state"][0]["step"].item() == 2
        other[2].load_state_dict(state)
    for each in (one, other):
        step(*each)
    for a, b in zip([*one[0].parameters(), *one[1].parameters()], [*other[0].parameters(), *other[1].parameters()]):
        assert np.array_equal(a.numpy(), b.numpy())
    with pytest.raises(spillway.SpillwayError):
        rule(one[1].fc1.parameters(), **settings).load_state_dict(one[2].state_dict())


def test_gradients_are_clipped_in_place():
    net = Net().double()
    other = spillway.tensor([3.0, 4.0], dtype="f64", requires_grad=True)
    optimizer = spillway.SGD(net.fc1.parameters(), lr=0.1)
    (net(spillway.ones((2, 4), "f64")).sum() + (other * other).sum()).backward()
    parameters = [*net.parameters(), other]
    before = [p.grad.numpy().copy() for p in parameters]
    norm = math.sqrt(sum((g * g).sum() for g in before))
    assert abs(nn.utils.clip_grad_norm_(parameters, 1e9).item() - norm) < 1e-12
    assert all(np.array_equal(p.grad.numpy(), g) for p, g in zip(parameters, before))
    assert abs(nn.utils.clip_grad_norm_(parameters, 0.5).item() - norm) < 1e-12
    for p, g in zip(parameters, before):
        np.testing.assert_allclose(p.grad.numpy(), g * 0.5 / (norm + 1e-6), rtol=1e-9)
    weight, gradient = net.fc1.weight.numpy().copy(), net.fc1.weight.grad.numpy().copy()
    optimizer.step()
    np.testing.assert_allclose(net.fc1.weight.numpy(), weight - 0.1 * gradient, rtol=1e-12)


# The learning rates of torch.optim.lr_scheduler after 0, 1, 2 ... steps, as tests/peers/modules.py prints them.
SCHEDULES = {
    "StepLR": ("StepLR", dict(step_size=3, gamma=0.5),
        [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025]),
    "MultiStepLR": ("MultiStepLR", dict(milestones=[2, 5], gamma=0.3),
        [0.1, 0.1, 0.03, 0.03, 0.03, 0.009, 0.009, 0.009, 0.009]),
    "ExponentialLR": ("ExponentialLR", dict(gamma=0.9),
        [0.1, 0.09000000000000001, 0.08100000000000002, 0.07290000000000002, 0.06561000000000002, 0.05904900000000002, 0.05314410000000002, 0.04782969000000002, 0.043046721000000024]),
    "LinearLR": ("LinearLR", dict(start_factor=0.25, total_iters=4),
        [0.025, 0.043750000000000004, 0.06250000000000001, 0.08125000000000002, 0.10000000000000002, 0.10000000000000002, 0.10000000000000002, 0.10000000000000002, 0.10000000000000002]),
    "LinearLR, down": ("LinearLR", dict(start_factor=1.0, end_factor=0.0, total_iters=7),
        [0.1, 0.08571428571428573, 0.07142857142857144, 0.057142857142857155, 0.042857142857142864, 0.02857142857142858, 0.01428571428571429, 0.0, 0.0]),
    "CosineAnnealingLR": ("CosineAnnealingLR", dict(T_max=8, eta_min=0.01),
        [0.1, 0.0965745789630079, 0.08681980515339463, 0.07222075445642905, 0.055, 0.03777924554357096, 0.023180194846605363, 0.013425421036992097, 0.01]),
    "OneCycleLR": ("OneCycleLR", dict(max_lr=0.5, total_steps=9),
        [0.020000000000000018, 0.32567911761729995, 0.49720771772545586, 0.44928332967322343, 0.3528223644955498, 0.23131855133348753, 0.11436497657982403, 0.030446484879016203, 2e-06]),
    "OneCycleLR, linear": ("OneCycleLR", dict(max_lr=0.5, total_steps=9, anneal_strategy="linear", three_phase=True),
        [0.02, 0.30235294117647066, 0.41529411764705876, 0.13294117647058812, 0.017391565217391304, 0.013044173913043477, 0.00869678260869565, 0.004349391304347826, 1.9999999999985307e-06]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_have_pytorchs_rates(name):
    kind, arguments, rates = SCHEDULES[name]
    optimizer = spillway.AdamW(Net(), lr=0.1)
    schedule = getattr(spillway.optim.lr_scheduler, kind)(optimizer, **arguments)
    found = []
    for _ in rates:
        found.append(schedule.get_last_lr()[0])
        assert optimizer.param_groups[0]["lr"] == optimizer.lr == found[-1]
        optimizer.step()
        if len(found) < len(rates):
            schedule.step()
    np.testing.assert_allclose(found, rates, rtol=1e-12, atol=1e-15)
    again = getattr(spillway.optim.lr_scheduler, kind)(spillway.AdamW(Net(), lr=0.1), **arguments)
    again.load_state_dict(schedule.state_dict())
    assert again.last_epoch == len(rates) - 1 and again.get_last_lr() == [found[-1]]


def test_a_result_has_its_history(flags, tmp_path):
    flags.update(steps=6, validation_fraction=0.1, validate_every=3)
    steps = []

    def hear(event):
        steps.append(event)
        return event.step < 3

    stopped = spillway.Trainer(**flags).train(hear, log=quiet, progress=False)
    assert not stopped.finished and [event.step for event in steps] == [1, 2, 3, 4] and "step=4, steps=6, loss=" in repr(steps[-1])
    validations = []
    result = spillway.Trainer(**flags).train(steps.append, validations.append, log=quiet, progress=False)
    assert result.finished and [event.step for event in steps] == [1, 2, 3, 4, 5, 6]
    assert result.losses == [event.loss for event in steps] and [row["step"] for row in result.history] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in result.validations] == [3, 6] and result.validations[1][1] == validations[0].loss
    assert repr(validations[0]).startswith("ValidationEvent(step=6, loss=") and "finished" in repr(result)


class Frame:
    """The parts of pandas' DataFrame that are read."""

    columns = ["text", "note"]

    def itertuples(self, index, name):
        return iter([("some words of a text", float("nan")), ("and some others", "x")])


class Indexed:
    """The parts of PyTorch's TensorDataset that are read. As there, indexing never ends."""

    def __len__(self):
        return 2

    def __getitem__(self, at):
        return np.full(3, at), np.zeros(3)


class Table:
    """The parts of pyarrow's Table that are read, which are also those of a RecordBatch."""

    def to_batches(self):
        return [self]

    def to_pylist(self):
        return [{"text": "a"}, {"text": "b"}]


class LazyFrame:
    """The parts of Polars' LazyFrame by which it is known."""

    def collect(self):
        raise AssertionError

    collect_schema = collect


class Loader:
    """A DataLoader's batches."""

    def __iter__(self):
        for start in (0, 2):
            yield {"input_ids": np.arange(start, start + 10).reshape(2, 5), "labels": np.arange(start, start + 10).reshape(2, 5)}


def test_rows_of_loaders_and_frames(tmp_path):
    def lines(rows, name):
        with open(spillway.write_rows(tmp_path / f"{name}.jsonl", rows)) as file:
            return [json.loads(line) for line in file]

    assert lines(Loader(), "loader")[:2] == [{"input_ids": [0, 1, 2, 3, 4], "labels": [0, 1, 2, 3, 4]}, {"input_ids": [5, 6, 7, 8, 9], "labels": [5, 6, 7, 8, 9]}]
    assert lines([[np.ones((2, 3), int)], (np.zeros((1, 2), int),)], "tensors") == [{"input_ids": [1, 1, 1]}, {"input_ids": [1, 1, 1]}, {"input_ids": [0, 0]}]
    assert lines([{"text": ["a", "b"]}], "texts") == [{"text": "a"}, {"text": "b"}]
    with pytest.warns(UserWarning, match="note"):
        assert lines(Frame(), "frame") == [{"text": "some words of a text"}, {"text": "and some others"}]
    assert lines(Indexed(), "indexed") == [{"input_ids": [0, 0, 0]}, {"input_ids": [1, 1, 1]}]
    assert lines(Table(), "table") == lines((text for text in "ab"), "strings") == [{"text": "a"}, {"text": "b"}]
    with pytest.raises(spillway.UsageError, match=r"write \[ids\]"):
        lines(np.arange(3), "one")
    for data, instead in ((LazyFrame(), "collect()"), ({"text": ["a"]}, "zip("), ({"train": [1], "test": [2]}, "data['train']"),
                          (["a text of words"], '{"text": text}')):
        with pytest.raises(spillway.UsageError, match=re.escape(instead)):
            spillway.Trainer(model="gpt2-tiny", data=data, out=tmp_path / "run")
    assert not (tmp_path / "run.data.jsonl").exists()


def test_a_plan_is_a_table_in_a_notebook():
    plan = spillway.plan(model="gpt2-tiny", device="cpu", device_memory="64MiB", host_memory="64MiB", sequence_length=32)
    html = plan._repr_html_()
    assert html.count("<tr>") == len(plan.rows) + 3 and "64 MiB" in html and "<details>" in html and "<script" not in html
