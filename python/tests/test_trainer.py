"""`spillway train` from Python: events, exceptions, Ctrl-C, the other commands as objects."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import spillway


class Mine(Exception):
    pass


def quiet(line):
    pass


def test_events_and_result(flags):
    steps, saves, lines = [], [], []
    flags.update(validation_fraction=0.1, validate_every=3)
    validations = []
    result = spillway.Trainer(**flags).train(steps.append, validations.append, saves.append, log=lines.append)
    assert [e.step for e in steps] == [1, 2, 3, 4, 5, 6] and steps[0].steps == 6
    assert steps[-1].loss < steps[0].loss and steps[0].tokens == 32
    assert [e.step for e in validations] == [3, 6] and validations[-1].best
    assert [e.step for e in saves] == [2, 4, 6] and saves[-1].checkpoint == result.checkpoint
    assert result.finished and result.run == flags["out"]
    assert any(line.startswith("memory plan:") for line in lines)
    assert "step 6" in str(spillway.status(result.run)) and spillway.status(result.run)["step"] == 6


def test_fp8_is_near_bf16(flags):
    losses = {}
    for precision in ("bf16", "fp8"):
        steps = []
        flags.update(precision=precision, out=flags["out"].parent / precision)
        assert spillway.Trainer(**flags).train(steps.append, log=quiet).finished
        losses[precision] = [e.loss for e in steps]
    assert losses["fp8"] != losses["bf16"]
    assert losses["fp8"] == pytest.approx(losses["bf16"], rel=0.02)


def test_what_a_callback_raises_comes_out(flags):
    def fail(event):
        if event.step == 5:
            raise Mine("five")

    with pytest.raises(Mine, match="five") as error:
        spillway.Trainer(**flags).train(fail, log=quiet)
    assert error.traceback[-1].name == "fail"
    steps = []
    assert spillway.Trainer(**flags).train(steps.append, log=quiet).finished  # the run resumes from the last checkpoint
    assert [e.step for e in steps] == [5, 6]


def test_ctrl_c_saves(flags):
    def interrupt(event):
        if event.step == 2:
            os.kill(os.getpid(), signal.SIGINT)  # the run sees the signal after the next step, after which no checkpoint is due

    with pytest.raises(KeyboardInterrupt):
        spillway.Trainer(**flags).train(interrupt, log=quiet)
    steps = []
    spillway.Trainer(**flags).train(steps.append, log=quiet)
    assert [e.step for e in steps] == [4, 5, 6]


def test_ctrl_c_before_the_first_step_trains_nothing(flags):
    said, steps = [], []

    def interrupt(line):
        said.append(line)
        if len(said) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        spillway.Trainer(**flags).train(steps.append, log=interrupt)
    assert steps == [] and any("nothing was trained" in line for line in said)
    assert spillway.Trainer(**flags).train(steps.append, log=quiet).finished and len(steps) == 6


def test_ctrl_c_is_heard_by_ranks_that_are_threads(flags):
    flags.update(ranks=2, communicator="local", device_memory="128MiB", checkpoint_every=100, steps=200)
    with pytest.raises(KeyboardInterrupt):
        spillway.Trainer(**flags).train(lambda event: os.kill(os.getpid(), signal.SIGINT) if event.step == 2 else None, log=quiet)
    assert 2 <= spillway.status(flags["out"])["step"] < 100
    assert len(os.listdir(flags["out"] / "checkpoints")) == 1


@pytest.mark.parametrize(
    "change, kind, also, word",
    [
        (dict(modle="gpt2-tiny"), spillway.UsageError, ValueError, "did you mean \"model\""),
        (dict(data="not-there.txt"), spillway.DataError, ValueError, "not-there.txt"),
        (dict(device_memory="1MiB", host_memory="1MiB"), spillway.RefusedError, MemoryError, "does not fit"),
    ],
)
def test_errors_by_kind(flags, change, kind, also, word):
    with pytest.raises(kind, match=word) as error:
        spillway.Trainer(**{**flags, **change}).train(log=quiet)
    assert isinstance(error.value, also) and error.value.status == kind.status
    assert not flags["out"].exists()


def test_words_of_other_commands():
    from spillway.flags import words

    made = words(dict(model="m", from_scratch=True, tie=False, data=["a", "b"], learning_rate=1e-3, steps=3, nvme=None))
    assert made == [b"--model=m", b"--from-scratch", b"--data=a", b"--data=b", b"--learning-rate=0.001", b"--steps=3"]
    with pytest.raises(TypeError, match="data: expected"):
        words(dict(data={}))


def config_of(flags):
    spillway.Trainer(**flags).train(log=quiet)
    config = (flags["out"] / "config.json").read_text()
    shutil.rmtree(flags["out"])
    return config


def test_typed_values_are_those_of_the_flags(flags):
    """The run that typed values make has the configuration of the run that the texts of the command line make."""
    del flags["learning_rate"], flags["device_memory"], flags["checkpoint_every"], flags["tensorboard"]
    typed = dict(learning_rate=np.float64(1e-3), betas=(0.8, np.float32(0.5)), device_memory=2**28, host_memory=np.int64(2**28), steps=2,
                 checkpoint_every=7, tensorboard=False, packing=False, zero_stage=0, trace_steps=[1, 2], timeout=90, drop_last=True,
                 place_optimizer={"device": "1MiB", "host": "rest"}, place_gradients="host", validation_fraction=0, from_scratch=False,
                 validation_data=[str(flags["data"])], nvme=None)
    texts = dict(learning_rate="0.001", betas="0.8,0.5", device_memory="256MiB", host_memory="256MiB", steps="2", checkpoint_every="7",
                 tensorboard="off", packing="off", zero_stage="0", trace_steps="1:2", timeout="90s", drop_last="true",
                 place_optimizer="device=1MiB,host=rest", place_gradients="host", validation_fraction="0", from_scratch="false",
                 validation_data=os.fsencode(flags["data"]))
    assert config_of({**flags, **typed}) == config_of({**flags, **texts})


@pytest.mark.parametrize("change, kind, words", [
    (dict(steps=2.0), TypeError, r"\[steps\] expected a whole number, got 2"),
    (dict(steps=True), TypeError, r"\[steps\] expected a whole number, got true"),
    (dict(steps=0), ValueError, r"\[steps\] expected a value at least 1, got 0"),
    (dict(steps=2**70), ValueError, rf'\[steps\] expected a whole number, got "{2**70}"'),
    (dict(steps=10**5000), ValueError, "steps: expected a whole number that fits 64 bits, got a larger one"),
    (dict(steps=np.ones(3)), TypeError, "steps: expected text, .* got ndarray"),
    (dict(steps=[1, 2]), ValueError, r"\[steps\] expected one value, got 2"),
    (dict(learning_rate=float("nan")), ValueError, r"\[learning_rate\] expected a number such as 3e-4 or 0.1, got nan"),
    (dict(learning_rate="fast"), ValueError, r'\[learning_rate\] expected a number such as 3e-4 or 0.1, got "fast"'),
    (dict(lora=False), TypeError, r"\[lora\] expected a whole number, got false"),
    (dict(model=3), TypeError, r"\[model\] expected text, got 3"),
    (dict(device_memory=0.5), TypeError, r"\[device_memory\] expected a size with its unit"),
    (dict(device_memory="1"), ValueError, r"\[device_memory\] expected a size with its unit"),
    (dict(place_optimizer={"gpu": "rest"}), ValueError, r"\[place_optimizer\] expected device, host, nvme"),
    (dict(optimizer={1, 2}), TypeError, "optimizer: expected text, a path, a number, True, False, or a list or dict of them, got set"),
    (dict(learning_rate=1j), TypeError, "learning_rate: expected text, .* got complex"),
    (dict(steps=3, epochs=1.0), ValueError, r"\[epochs\] expected only one of this and steps"),
])
def test_values_of_other_types_are_refused(flags, change, kind, words):
    with pytest.raises(spillway.UsageError, match=words) as error:
        spillway.Trainer(**{**flags, **change})
    assert isinstance(error.value, kind)
    knot = []
    knot.append(knot)
    with pytest.raises(TypeError, match="data: expected text"):
        spillway.plan(**{**flags, "data": knot})


def of_the_program(*line):
    done = subprocess.run([sys.executable, "-m", "spillway", *line, "--json"], capture_output=True, text=True)
    return json.loads(done.stdout)


def test_reports_are_what_the_program_prints(flags):
    """Attributes, keys and the dictionary are those of --json."""
    flags = dict(model="gpt2-tiny", cluster="1x1xH100-80GiB,1TiB", precision="bf16", learning_rate=1e-3, sequence_length=32, roofline=True)
    printed = of_the_program("plan", *(f"--{name.replace('_', '-')}={value}" for name, value in
                                       {**flags, "roofline": "true"}.items()))
    plan = spillway.plan(**flags)
    assert set(plan.to_dict()) == set(printed) == set(spillway.PlanReport.__annotations__)
    for key, value in printed.items():
        assert plan[key] == getattr(plan, key) and type(plan[key]) is type(value), key
        assert plan[key] == value, key  # nothing was measured
    assert plan.total_bytes["device"] > 0 and "--learning-rate 0.001" in plan.command

    doctor = spillway.doctor()
    same = [(one["level"], one["name"], one["text"], one["cure"]) for one in doctor.findings if one["name"] not in ("memory", "leftovers")]
    assert same and same == [tuple(one.values()) for one in of_the_program("doctor") if one["name"] not in ("memory", "leftovers")]
    assert doctor[0] is doctor.findings[0] is doctor.to_dict()[0]


def test_a_status_is_what_the_program_prints(flags):
    spillway.Trainer(**flags).train(log=quiet)
    printed, status = of_the_program("status", str(flags["out"])), spillway.status(flags["out"])
    assert list(status.to_dict()) == list(printed) and set(printed) == set(spillway.StatusReport.__annotations__)
    printed["last_step_age_s"], printed["checkpoint"]["age_s"] = status.last_step_age_s, status.checkpoint["age_s"]
    assert status.to_dict() == printed and (status.step, status.state, status.loss) == (6, "finished", printed["loss"])
    with pytest.raises(spillway.UsageError, match="neither metrics.jsonl nor a lock"):
        spillway.status(flags["out"].parent)
    with pytest.raises(spillway.DataError, match="is no folder"):
        spillway.status("nowhere")


def test_plans_are_objects():
    plan = spillway.plan(model="gpt2-tiny", device="cpu", device_memory="64MiB", host_memory="64MiB", sequence_length=32)
    assert plan["predicted_step_s"] > 0 and "memory plan" not in plan.to_dict()
    table, spillway.reports._core = str(plan), None  # printing must not plan again
    try:
        assert str(plan) == table
    finally:
        spillway.reports._core = spillway._core
    assert "it fits" in str(plan) and "<td" in plan._repr_html_() and "it fits" in plan._repr_html_()
    with pytest.raises(spillway.RefusedError, match="does not fit"):
        spillway.plan(model="gpt2-1.5b", device="cpu", device_memory="64MiB", host_memory="64MiB")
    assert "cores" in str(spillway.doctor())


def test_threads_of_the_environment():
    ask = "import spillway; print(spillway.get_threads(), *[each['text'] for each in spillway.doctor() if each['name'] == 'threads'])"
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert said.stdout.startswith("1 1 on CPU") and "OMP_NUM_THREADS=1" in said.stdout


def test_the_program_is_in_the_package():
    said = subprocess.run([sys.executable, "-m", "spillway", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"spillway {spillway.__version__}\n"


def test_own_data(tmp_path, flags):
    rows = [[i % 7 for i in range(start, start + 40)] for start in range(30)]
    flags["data"] = spillway.write_tokens(tmp_path / "mine.bin", ({"input_ids": row} for row in rows))
    assert (tmp_path / "mine.bin").stat().st_size == 1024 + 4 * 30 * 40
    steps = []
    spillway.Trainer(**flags).train(steps.append, log=quiet)
    assert steps[-1].loss < steps[0].loss
    assert "tokens" in spillway.command("inspect", tmp_path / "mine.bin")
    with pytest.raises(spillway.DataError, match="nothing.bin"):
        spillway.command("inspect", tmp_path / "nothing.bin")
    with pytest.raises(ValueError, match="row 1"):
        spillway.write_tokens(tmp_path / "bad.bin", [[1], [-1]])
    assert sorted(p.name for p in tmp_path.iterdir() if "bad" in p.name) == []


def test_rows_of_a_dataset(tmp_path, flags):
    """Rows of token ids with labels are the run that their prompts and completions are; resumed, other rows are refused."""
    pairs = [(f"{i} and {i % 3}: ", f"{i * 7 % 100}.") for i in range(40)]

    def rows():
        for prompt, completion in pairs:
            ids = list((prompt + completion).encode())
            labels = [-100] * len(prompt) + ids[len(prompt) :]
            yield {"input_ids": np.array(ids + [0, 0]), "labels": labels + [-100, -100], "attention_mask": [1] * len(ids) + [0, 0], "text": "left out"}

    def losses(data, out, **more):
        steps = []
        spillway.Trainer(**{**flags, "data": data, "out": tmp_path / out, "tokenizer": "bytes", **more}).train(steps.append, log=quiet)
        return [step.loss for step in steps]

    texts = spillway.write_rows(tmp_path / "texts.jsonl", ({"prompt": p, "completion": c} for p, c in pairs))
    want = losses(texts, "texts")
    assert len(want) == 6 and losses(rows(), "deep/rows") == want
    assert losses(texts, "all", loss_on="all") != want
    assert losses([row["input_ids"][:-2] for row in rows()], "arrays") == losses(texts, "all again", loss_on="all")
    first = (tmp_path / "deep/rows.data.jsonl").read_text().splitlines()[0]
    assert "left out" not in first and '"labels": [-100, ' in first

    assert losses(rows(), "deep/rows", steps=8)[:1] != want[:1]  # the run continues at step 7
    pairs.reverse()
    with pytest.raises(spillway.UsageError, match="data"):
        losses(rows(), "deep/rows", steps=9)


def test_rows_keep_what_stands_beside_tokens_and_messages(tmp_path):
    """TRL's and transformers' keys go into the file; others are named once."""
    packed = {"input_ids": np.array([1, 2, 3]), "position_ids": np.array([0, 1, 0]), "seq_lengths": [2, 1], "completion_mask": [0, 1, 1], "text": "left out"}
    with pytest.warns(UserWarning, match=": special_tokens_mask, length$"):
        path = spillway.write_rows(tmp_path / "packed.jsonl", [packed, {**packed, "special_tokens_mask": [0, 0, 0], "length": 3}, {**packed, "length": 3}])
    row = '{"input_ids": [1, 2, 3], "position_ids": [0, 1, 0], "seq_lengths": [2, 1], "completion_mask": [0, 1, 1]}'
    assert pathlib.Path(path).read_text().splitlines() == [row] * 3
    said = {"messages": [{"role": "user", "content": "x"}], "tools": [], "chat_template_kwargs": {"enable_thinking": False}}
    assert json.loads(pathlib.Path(spillway.write_rows(tmp_path / "said.jsonl", [said])).read_text()) == said
    with pytest.raises(ValueError, match="attention_mask of row 0"):
        spillway.write_tokens(tmp_path / "padded.bin", [{"input_ids": [1, 0], "attention_mask": [1, 0]}])
    with pytest.raises(spillway.DataError, match=r"line 1, column 43: expected `position_ids` that count up by one"):
        spillway.Trainer(model="gpt2-tiny", data=[{"input_ids": [1, 2], "position_ids": [0, 2]}], out=tmp_path / "run", steps=1).train(log=quiet)


@pytest.mark.parametrize("rows, words", [
    ([], "expected rows, got none"),
    ([{"input_ids": [1]}, {"ids": [1]}], "row 1, got ids"),
    ([{"text": object()}], "row 0"),
    ([7], "row 0, got int"),
    ([{"input_ids": [float("nan")]}], "row 0"),
])
def test_rows_that_are_none(tmp_path, rows, words):
    with pytest.raises(ValueError, match=words):
        spillway.write_rows(tmp_path / "bad.jsonl", rows)
    assert not list(tmp_path.glob("bad*"))


def test_rows_need_names(tmp_path, flags):
    with pytest.raises(ValueError, match="ends in .jsonl"):
        spillway.write_rows(tmp_path / "rows.json", [[1]])
    with pytest.raises(ValueError, match="data: expected `out`"):
        spillway.Trainer(model="gpt2-tiny", data=iter([[1, 2]]))
    with pytest.raises(spillway.DataError, match=r"line 2, column 37: expected the label -100 or the token 5"):
        spillway.Trainer(**{**flags, "data": [[1, 2, 3], {"input_ids": [4, 5], "labels": [4, 6]}]}).train(log=quiet)
