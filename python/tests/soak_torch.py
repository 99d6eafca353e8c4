"""Models of PyTorch for long: memory stays flat over 1,000 steps, and a run that an exception ended anywhere goes on with the same bits.
It takes minutes (tests/python.cmake)."""

import gc
import hashlib
import random
import shutil
import threading
import time
import tracemalloc

import pytest

torch = pytest.importorskip("torch")

import spillway  # noqa: E402
from test_torch import PLACEMENTS, SETTINGS, cross_entropy, points  # noqa: E402

STEPS = 1000
FAULTS = 100
SECONDS = 30  # within which a run ends


class Fault(Exception):
    """An error of the user's own."""


class Plan:
    """Counts what each rank computes and raises a Fault at one place. Ranks are threads; they are numbered as they come."""

    def __init__(self):
        self.lock = threading.Lock()
        self.begin(None)

    def begin(self, place):
        self.place, self.ranks, self.counts = place, {}, {}

    def at(self, kind):
        with self.lock:
            rank = self.ranks.setdefault(threading.get_ident(), len(self.ranks)) if kind == "forward" else 0
            count = self.counts[kind, rank] = self.counts.get((kind, rank), 0) + 1
        if (kind, rank, count) == self.place:
            raise Fault(f"{kind} {count} of rank {rank}")


PLAN = Plan()


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        PLAN.at("backward")  # on a thread of PyTorch or of the rank, so that backwards are counted for all ranks together
        return gradient


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(32), torch.nn.Linear(32, 32)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x):
        PLAN.at("forward")
        return x + self.dropout(torch.tanh(self.linear(self.norm(Marked.apply(x)))))


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), Layer(), Layer(), torch.nn.Linear(32, 3)).double()


def trainer(folder, **more):
    folder.mkdir(exist_ok=True)
    settings = {**SETTINGS, **more}
    if "nvme" in settings.values():
        settings["nvme"] = folder / "scratch"
    return spillway.Trainer(model=model(), data=points(), loss=cross_entropy, out=folder / "run", **settings)


def run(made, **more):
    result = made.train(progress=False, log=lambda line: None, **more)
    return result.losses, hashlib.sha256((result.checkpoint / "model.safetensors").read_bytes()).hexdigest()


def resident():
    """Bytes of this process's memory that are not pages of files."""
    with open("/proc/self/status", encoding="ascii") as status:
        fields = dict(line.split(":") for line in status)
    return int(fields["RssAnon"].split()[0]) << 10


@pytest.mark.parametrize("placement", ["recomputed", "nvme, graph kept"])
def test_memory_stays_flat(placement, tmp_path):
    seen = []

    def look(event):
        if event.step in (STEPS // 4, STEPS):
            gc.collect()
            seen.append((resident(), tracemalloc.get_traced_memory()[0], len(gc.get_objects())))

    tracemalloc.start()
    try:
        run(trainer(tmp_path, steps=STEPS, **PLACEMENTS[placement]), on_step=look)
    finally:
        tracemalloc.stop()
    growth = [after - before for before, after in zip(*seen)]
    print(f"{placement}: steps {STEPS // 4} to {STEPS}: {growth[0] >> 10} KiB resident, {growth[1]} bytes of Python, {growth[2]} objects; "
          f"{seen[1][0] >> 20} MiB resident, {seen[1][2]} objects")
    assert growth[0] < 8 << 20 and growth[1] < 64 << 10 and growth[2] < 200


def test_exceptions_anywhere(tmp_path):
    draw, longest, undisturbed, raised, started, places, number = random.Random(7), 0.0, {}, 0, 0, {}, 0
    names = ["recomputed", "nvme, graph kept", "zero 3", "zero 3 on nvme", "two stages", "split backward"]
    for name in names:
        made = trainer(tmp_path / name, checkpoint_every=2, **PLACEMENTS[name])
        PLAN.begin(None)
        undisturbed[name] = run(made)
        places[name] = PLAN.counts
    while raised < FAULTS:
        name, folder = names[number % len(names)], tmp_path / str(number)
        number += 1
        PLAN.begin(None)
        kind, rank = draw.choice(sorted(places[name]))
        place = (kind, rank, draw.randint(1, places[name][kind, rank]))
        made = trainer(folder, checkpoint_every=2, **PLACEMENTS[name])
        PLAN.begin(place)
        begin = time.monotonic()
        try:
            assert run(made) == undisturbed[name]
            continue  # blocks are measured once for all ranks, so that counts differ between runs
        except Fault as error:
            longest, raised = max(longest, time.monotonic() - begin), raised + 1
            assert error.__notes__[0].startswith(f"{kind} of block `"), place
        saved = folder / "run" / "checkpoints"
        started += saved.exists() and any(saved.glob("step-*"))
        PLAN.begin(None)
        assert run(trainer(folder, checkpoint_every=2, **PLACEMENTS[name])) == undisturbed[name], (name, place)
        shutil.rmtree(folder)
    print(f"{raised} exceptions in {number} runs, {started} of them after a checkpoint: the longest run took {longest:.1f} s to end")
    assert longest < SECONDS and started > FAULTS // 4 and number < 2 * FAULTS
