"""PyTorch users' data as samples: equal to what a plain loop over it yields, after a restart and on several threads too, and refusals."""

import random
import threading
import time
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Subset, TensorDataset, WeightedRandomSampler

import spillway
from spillway.errors import DataError, UsageError, UsageTypeError
from spillway.torch._data import samples_of, with_labels

ROWS = 11
X = torch.arange(ROWS * 3, dtype=torch.float32).reshape(ROWS, 3) / 7
Y = torch.arange(ROWS) % 4
TEXTS = [[7, 8, 9], [5], [1, 2, 3, 4, 5], [6, 6]]


def seeded(seed=5):
    return torch.Generator().manual_seed(seed)


class Named(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, i):
        return {"x": X[i], "y": Y[i]}


class Counting(IterableDataset):
    """Gives other rows in each epoch, and counts how often it is begun."""

    def __init__(self, rows=ROWS, length=False):
        self.rows, self.begun, self.epoch = rows, 0, 0
        if length:
            self.__class__ = type("CountingWithLength", (Counting,), {"__len__": lambda self: self.rows})

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        self.begun += 1
        for i in range(self.rows):
            yield {"x": torch.tensor([self.epoch * 100 + i]), "y": i}


def named(rows):
    x, y = zip(*rows)
    return {"x": torch.stack(x), "y": torch.stack(y)}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], torch.as_tensor(value)) for key, value in other.items())


def rows_of(loader, epochs=1):
    """The rows of a plain loop, taken apart."""
    rows = []
    for _ in range(epochs):
        for batch in loader:
            rows += [{key: value[at] for key, value in batch.items()} for at in range(len(batch["y"]))]
    return rows


@pytest.mark.parametrize("data", [
    Named(), [{"x": X[i], "y": Y[i]} for i in range(ROWS)], {"x": X, "y": Y}, {"x": X.numpy(), "y": Y.tolist()},
    [{"x": X[i].tolist(), "y": int(Y[i])} for i in range(ROWS)],
    [{"x": X[i].numpy(), "y": np.int64(Y[i]), "text": "a"} for i in range(ROWS)], Subset(Named(), range(ROWS)),
], ids=["dataset", "list", "tensors", "arrays", "numbers", "numpy", "subset"])
def test_rows_by_index(data):
    samples = samples_of(data, "data")
    assert (len(samples), samples.ordered, samples.streamed, samples.draws, samples.batch_size) == (ROWS, False, False, False, None)
    for i in reversed(range(ROWS)):
        assert equal(samples[i], {"x": X[i], "y": Y[i]})
    with pytest.raises(IndexError):
        samples[ROWS]


def test_tuples_are_named_by_the_collator():
    data = TensorDataset(X, Y)
    with pytest.raises(UsageTypeError, match=r"data\[0\]: expected a dictionary of tensors, got a tuple of 2: give collate="):
        samples_of(data, "data")
    samples = samples_of(data, "data", collate=named)
    assert equal(samples[4], {"x": X[4], "y": Y[4]})
    with pytest.raises(UsageTypeError, match="got a list of 2: give the loader a collate_fn that names them"):
        samples_of(DataLoader(data, batch_size=2), "data")


def loaders():
    yield "in order", lambda: DataLoader(Named(), batch_size=4)
    yield "drop_last", lambda: DataLoader(Named(), batch_size=4, drop_last=True)
    yield "shuffled", lambda: DataLoader(Named(), batch_size=4, shuffle=True, generator=seeded())
    yield "sampler", lambda: DataLoader(Named(), batch_size=3, sampler=RandomSampler(Named(), generator=seeded()))
    yield "weighted", lambda: DataLoader(Named(), batch_size=3, sampler=WeightedRandomSampler([1.0] * ROWS, 8, generator=seeded()))
    yield "batches", lambda: DataLoader(Named(), batch_sampler=[[1, 2, 3], [0], [9, 4]])
    yield "dropped", lambda: DataLoader(Named(), batch_sampler=BatchSampler(RandomSampler(Named(), generator=seeded()), 4, True))
    yield "workers", lambda: DataLoader(Named(), batch_size=4, shuffle=True, generator=seeded(), num_workers=1, persistent_workers=True)
    yield "stateful", lambda: stateful()(Named(), batch_size=4, shuffle=True, generator=seeded())


def stateful():
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in loaders()])
def test_a_loader_gives_the_order_of_its_own_loop_in_each_epoch(make):
    right = rows_of(make(), epochs=3)
    loader = make()
    samples = samples_of(loader, "data")
    assert samples.ordered and not samples.streamed and len(samples) * 3 == len(right)
    for row in [0, 1, 2, len(right) - 1, 3, *range(len(right))]:  # going back to an epoch as well
        assert equal(samples.read(row % len(samples), row), right[row]), row
    assert all(equal(one, other) for one, other in zip(rows_of(loader), right)), "the user's loader was moved"


def test_a_loader_without_a_seed_is_refused():
    for loader in (DataLoader(Named(), shuffle=True), DataLoader(Named(), sampler=RandomSampler(Named()))):
        with pytest.raises(UsageError, match=r"got RandomSampler without a seed: write DataLoader\(..., shuffle=True, generator="):
            samples_of(loader, "data")

    class Own(torch.utils.data.Sampler):
        numbers = random.Random(3)

        def __iter__(self):
            return iter(self.numbers.sample(range(ROWS), ROWS))

    with pytest.raises(UsageError, match="got Own without a seed"):
        samples_of(DataLoader(Named(), sampler=Own()), "data")
    with pytest.raises(UsageError, match="without a seed"):
        samples_of(stateful()(Named(), shuffle=True), "data")


def test_loaders_that_are_refused():
    shared = torch.utils.data.DistributedSampler(Named(), num_replicas=2, rank=0)
    with pytest.raises(UsageError, match="got DistributedSampler for one of 2 ranks: leave it out"):
        samples_of(DataLoader(Named(), sampler=shared), "data")
    with pytest.raises(UsageError, match="expected none beside a DataLoader"):
        samples_of(DataLoader(Named()), "data", collate=named)
    with pytest.raises(UsageError, match="one row for each of 4 samples, got 1"):
        samples_of(DataLoader(Named(), batch_size=4, collate_fn=lambda rows: {"y": torch.stack([row["y"] for row in rows])[None]}), "data")
    with pytest.raises(UsageError, match=r"from default_collate.*: write data.with_format\(\"torch\"\), or give the loader a collate_fn"):
        samples_of(DataLoader([{"input_ids": row[:1] * 3} for row in TEXTS], batch_size=3), "data")
    with pytest.raises(UsageError, match=r"\['n'\]: expected one row for each sample of the batch, 4, got one value"):
        samples_of(DataLoader(Named(), batch_size=4, collate_fn=lambda rows: {"x": torch.zeros(4), "n": torch.tensor(3)}), "data")


def test_at_most_two_batches_are_kept():
    alive = weakref.WeakSet()
    made = []

    def collate(rows):
        batch = torch.utils.data.default_collate(rows)
        alive.add(batch["x"])
        made.append(1)
        return batch

    samples = samples_of(DataLoader(Named(), batch_size=2, collate_fn=collate), "data")
    made.clear()
    for i in range(ROWS):
        samples[i]
        assert len(alive) <= 2
    assert len(made) == 5, "each batch is made once; the first was kept"


class Alone(Named):
    """Data that only one thread may read at a time, as a DataLoader's process does."""

    inside = 0

    def __getitem__(self, i):
        self.inside += 1
        time.sleep(1e-4)
        assert self.inside == 1
        self.inside -= 1
        return super().__getitem__(i)


def test_threads_read_the_same():
    samples = samples_of(DataLoader(Alone(), batch_size=4, shuffle=True, generator=seeded()), "data")
    right = rows_of(DataLoader(Named(), batch_size=4, shuffle=True, generator=seeded()), epochs=2)
    wrong = []

    def read(first):
        order = list(range(len(right)))
        random.Random(first).shuffle(order)
        wrong.extend(row for row in order if not equal(samples.read(row % ROWS, row), right[row]))

    threads = [threading.Thread(target=read, args=(first,)) for first in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == [] and samples._source._loader.dataset.inside == 0


class Noisy(Named):
    def __getitem__(self, i):
        return {"x": X[i] + torch.randn(3), "n": np.random.rand(2), "r": random.random()}


@pytest.mark.parametrize("data", [Noisy(), DataLoader(Noisy(), batch_size=4)], ids=["dataset", "loader"])
def test_random_numbers_are_the_same_whenever_a_row_is_read(data):
    samples, again = samples_of(data, "data"), samples_of(data, "data")
    assert samples.draws
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    right = torch.rand(2), np.random.rand(2), random.random()
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    first = [samples[i] for i in range(ROWS)]
    now = torch.rand(2), np.random.rand(2), random.random()
    assert torch.equal(now[0], right[0]) and (now[1] == right[1]).all() and now[2] == right[2], "the global generators were moved"
    for i in reversed(range(ROWS)):
        assert equal(again[i], first[i])
    assert not torch.equal(first[0]["r"], first[1]["r"]) or not torch.equal(first[0]["x"] - X[0], first[1]["x"] - X[1])
    assert not torch.equal(samples.read(1, 1 + ROWS)["x"], first[1]["x"]), "another epoch draws other numbers"


def test_a_generator_of_its_own_is_refused():
    class Own(Named):
        generator = seeded()

        def __getitem__(self, i):
            return {"x": torch.rand(2, generator=self.generator)}

    with pytest.raises(UsageError, match="expected the same values at each reading, got others the second time"):
        samples_of(Own(), "data")


def test_rows_of_tokens_are_padded():
    samples = samples_of([{"input_ids": row, "labels": row, "token_type_ids": [1] * len(row), "weight": 0.5} for row in TEXTS], "data",
                         sequence_length=5)
    assert equal(samples[0], {"input_ids": [7, 8, 9, 0, 0], "labels": [7, 8, 9, -100, -100], "token_type_ids": [1, 1, 1, 0, 0],
                              "weight": 0.5, "attention_mask": [1, 1, 1, 0, 0]})
    with pytest.raises(DataError, match=r"data\[2\]\['input_ids'\]: expected at most 4 tokens \(sequence_length\), got 5: cut the rows"):
        samples_of([{"input_ids": row} for row in TEXTS], "data", sequence_length=4)[2]
    with pytest.raises(DataError, match=r"data\[1\]\['input_ids'\]: expected the shape of the first .*\[3\], got \[1\]: give sequence_"):
        samples_of([{"input_ids": row} for row in TEXTS], "data")[1]


def test_labels():
    assert equal(with_labels({"input_ids": torch.tensor([4, 5, 0]), "attention_mask": torch.tensor([1, 1, 0])}),
                 {"input_ids": [4, 5, 0], "attention_mask": [1, 1, 0], "labels": [4, 5, -100]})


@pytest.fixture(scope="module")
def tokenizer():
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(30)}, unk_token="w1"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w2", mask_token="w3", unk_token="w1")


def test_transformers_collators(tokenizer):
    import transformers as tf

    rows = [{"input_ids": row, "attention_mask": [1] * len(row), "text": "some"} for row in TEXTS]
    samples = samples_of(rows, "data", collate=tf.DataCollatorForLanguageModeling(tokenizer, mlm=False), sequence_length=6)
    assert equal(samples[0], {"input_ids": [7, 8, 9, 2, 2, 2], "attention_mask": [1, 1, 1, 0, 0, 0], "labels": [7, 8, 9, -100, -100, -100]})
    loader = DataLoader([dict(row, labels=row["input_ids"]) for row in rows], batch_size=2, collate_fn=tf.DataCollatorForSeq2Seq(tokenizer))
    samples = samples_of(loader, "data", sequence_length=6)
    assert equal(samples[1], {"input_ids": [5, 2, 2, 2, 2, 2], "attention_mask": [1, 0, 0, 0, 0, 0], "labels": [5] + [-100] * 5})
    samples = samples_of([dict(row, label=1) for row in rows], "data", collate=tf.DataCollatorWithPadding(tokenizer), sequence_length=6)
    assert equal(samples[3], {"input_ids": [6, 6, 2, 2, 2, 2], "attention_mask": [1, 1, 0, 0, 0, 0], "labels": 1})
    assert equal(samples_of(rows[:1], "data", collate=tf.default_data_collator)[0], {"input_ids": [7, 8, 9], "attention_mask": [1, 1, 1]})
    masked = tf.DataCollatorForLanguageModeling(tokenizer, mlm=True, mlm_probability=0.5)
    samples = samples_of(rows, "data", collate=masked, sequence_length=6)
    assert samples.draws and all(equal(samples.read(2, row), samples.read(2, row)) for row in range(2, 40, 4))
    assert len({tuple(samples.read(2, row)["labels"].tolist()) for row in range(2, 40, 4)}) > 1, "other tokens are masked in each epoch"
    with pytest.raises(UsageError, match=r"got DataCollatorForLanguageModeling\(seed=1\): leave it out"):
        samples_of(rows, "data", collate=tf.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.5, seed=1), sequence_length=6)


def test_trl_collator():
    trl = pytest.importorskip("trl.trainer.sft_trainer")
    collate = trl.DataCollatorForLanguageModeling(pad_token_id=4)
    samples = samples_of(DataLoader([{"input_ids": row} for row in TEXTS], batch_size=2, collate_fn=collate), "data", sequence_length=5)
    assert samples[1]["input_ids"].tolist() == [5, 4, 4, 4, 4] and samples[1]["labels"].tolist() == [5] + [-100] * 4


def test_hugging_face_datasets(tokenizer):
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("datasets.distributed")
    rows = [{"input_ids": row, "text": "some"} for row in TEXTS]
    for data in (datasets.Dataset.from_list(rows), datasets.Dataset.from_list(rows).with_format("torch")):
        samples = samples_of(data, "data", sequence_length=5)
        assert equal(samples[3], {"input_ids": [6, 6, 0, 0, 0], "attention_mask": [1, 1, 0, 0, 0]})
    loader = DataLoader(datasets.Dataset.from_dict({"x": X, "y": Y}).with_format("torch"), batch_size=4, shuffle=True, generator=seeded())
    right = rows_of(loader)
    loader.generator.manual_seed(5)
    assert all(equal(samples_of(loader, "data")[i], right[i]) for i in range(ROWS))
    with pytest.raises(UsageTypeError, match=r"got a dictionary of them \(train, test\): write data=data\['train'\]"):
        samples_of(datasets.DatasetDict(train=data, test=data), "data")
    stream = datasets.Dataset.from_list([{"y": i} for i in range(40)]).to_iterable_dataset(num_shards=4).shuffle(seed=3, buffer_size=7)
    right = [row["y"] for epoch in range(2) for row in (stream.set_epoch(epoch) or stream)]
    samples = samples_of(stream, "data")
    assert samples.length is None and [int(samples.read(i)["y"]) for i in range(80)] == right and right[:40] != right[40:]
    with pytest.raises(UsageError, match="leave out split_dataset_by_node"):
        samples_of(datasets.distributed.split_dataset_by_node(stream, 0, 2), "data")


@pytest.mark.parametrize("batch", [None, 4])
def test_iterables_are_counted(batch):
    data = Counting()
    samples = samples_of(data if batch is None else DataLoader(data, batch_size=batch), "data")
    assert samples.ordered and samples.streamed and samples.length is None
    with pytest.raises(UsageError, match="got an iterable of unknown length: give steps="):
        len(samples)
    samples.length = 30
    begun = data.begun
    for row in (0, 1, 6, 5, 4, 9, 10, 11, 25, 29):  # skips, a few rows back, other epochs
        epoch, i = divmod(row, ROWS)
        assert equal(samples[row], {"x": [epoch * 100 + i], "y": i}), row
    assert data.begun == begun + 2, "two epochs more were begun"
    assert samples[2]["y"] == 2 and data.begun == begun + 3, "it is begun anew for a row that is no longer there"
    with pytest.raises(IndexError):
        samples[30]


def test_iterables_that_know_their_length():
    assert len(samples_of(DataLoader(Counting(length=True), batch_size=4), "data")) == ROWS
    assert len(samples_of(DataLoader(Counting(length=True), batch_size=4, drop_last=True), "data")) == 8
    assert len(samples_of(Counting(length=True), "data")) == ROWS


def test_iterables_that_are_refused():
    with pytest.raises(UsageError, match="got generator, which can be read once: write data=list"):
        samples_of(({"x": X[i]} for i in range(3)), "data")

    class Shuffled(IterableDataset):
        numbers = random.Random(1)

        def __iter__(self):
            return iter([{"y": i} for i in self.numbers.sample(range(99), 99)])

    with pytest.raises(UsageError, match="expected the same values at each reading"):
        samples_of(Shuffled(), "data")

    class Once(IterableDataset):
        rows = iter([{"y": i} for i in range(5)])

        def __iter__(self):
            yield from self.rows

    with pytest.raises((UsageError, DataError), match="expected (the same values|at least one row)"):
        samples_of(Once(), "data")
    with pytest.raises(DataError, match="expected at least one row in each epoch, got none in epoch 0"):
        samples_of(Counting(rows=0), "data")


class Stateful(IterableDataset):
    def __init__(self, exact=True):
        self.exact, self.read, self.at = exact, 0, 0

    def __iter__(self):
        start, self.at = self.at, 0
        for i in range(start, 400):
            self.read += 1
            self.now = i + 1
            yield {"y": i}

    def state_dict(self):
        return {"at": self.now if self.exact else 3}

    def load_state_dict(self, state):
        self.at = state["at"]


@pytest.mark.parametrize("exact", [True, False])
def test_a_loaders_state_is_its_cursor(exact):
    data = Stateful()
    samples = samples_of(stateful()(data, batch_size=4), "data")
    [samples.read(i) for i in range(300)]
    state, later = samples.state_dict(250), samples.state_dict(299)
    assert 200 < state["row"] <= 250 and samples_of(Named(), "data").state_dict(3) is None
    data = Stateful()
    resumed = samples_of(stateful()(data, batch_size=4), "data")
    if not exact:
        for one in (state, later):
            one["loader"]["_dataset_state"] = one["loader"]["fetcher_state"] = None
    resumed.load_state_dicts([later, state])
    data.read = 0
    if exact:
        assert resumed.read(250)["y"] == 250 and data.read < 60, "it does not read what came before"
    else:
        state["first"] ^= 1
        with pytest.warns(UserWarning, match="does not lead back to the row"):
            assert resumed.read(250)["y"] == 250
    assert resumed.read(399)["y"] == 399 and resumed.read(400)["y"] == 0
    assert resumed.read(0)["y"] == 0


@pytest.mark.parametrize("value, word", [
    ("text", "tokenize them first"), ([1, [2]], "list of 2"), (object(), "object"), (torch.eye(2).to_sparse(), "sparse"),
    (torch.zeros(2, dtype=torch.complex64), "complex"), ({"a": 1}, "dict"), ([["a"]], "list of 1"),
])
def test_values_that_are_refused(value, word):
    with pytest.raises(UsageError, match=r"data\[0\]") as raised:
        samples_of([{"key": value}], "data")
    assert word in str(raised.value) and ("'key'" in str(raised.value) or value == "text")


def test_samples_that_differ_from_the_first():
    rows = [{"x": X[0], "y": 1}, {"x": X[0]}, {"x": X[0].long(), "y": 1}]
    samples = samples_of(rows, "data")
    with pytest.raises(DataError, match=r"data\[1\]: expected the names of the first sample \(x, y\), got x"):
        samples[1]
    with pytest.raises(DataError, match=r"data\[2\]\['x'\]: expected torch.float32 as in the first sample, got torch.int64"):
        samples[2]


@pytest.mark.parametrize("data, word", [
    ([], "at least one sample"), ({}, "empty dictionary"), (3, "got int"), ("path", "got str"), ({"x": X, "y": Y[:3]}, r"\['y'\]"),
    ({"x": torch.tensor(3)}, "one row for each sample"), (IterableDataset, "got ABCMeta"),
])
def test_data_that_is_refused(data, word):
    with pytest.raises(UsageError, match=word):
        samples_of(data, "data")


class Numbers(IterableDataset):
    """Rows without end, of which no length is known."""

    read = 0

    def __iter__(self):
        at = getattr(self, "at", 0)
        while True:
            Numbers.read += 1
            self.now = at + 1
            yield {"x": torch.tensor([at % 97 / 97, 1.0]), "y": torch.tensor([at % 97 / 97 - 0.5])}
            at += 1

    def state_dict(self):
        return {"at": self.now}

    def load_state_dict(self, state):
        self.at = state["at"]


def numbers_trained(out, steps, data):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 1))
    trainer = spillway.Trainer(model=model, data=data, loss=lambda outputs, batch: ((outputs - batch["y"]) ** 2).mean(), out=out, steps=steps,
                               global_batch_size=4, micro_batch_size=4, device="cpu", lr_schedule="constant", warmup_steps=0, tensorboard="off")
    Numbers.read = 0
    result = trainer.train(progress=False, log=lambda line: None)
    return [row["loss"] for row in result.history], Numbers.read


@pytest.mark.parametrize("with_state", [False, True])
def test_a_run_over_a_stream_goes_on_with_more_steps(with_state, tmp_path):
    def data():
        return stateful()(Numbers(), batch_size=4) if with_state else Numbers()

    whole, _ = numbers_trained(tmp_path / "whole", 60, data())
    numbers_trained(tmp_path / "parts", 40, data())
    parts, read = numbers_trained(tmp_path / "parts", 60, data())
    assert parts == whole
    assert read < 150 if with_state else read > 200, "with the loader's state only the first rows, which are compared, are read again"
