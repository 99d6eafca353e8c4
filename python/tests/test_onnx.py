"""`export --format onnx` of every fixture, computed by onnxruntime: the logits that PyTorch gave (tests/data/language-models.md,
image-models.md). In one call, and position by position through the key/value cache."""
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import onnxruntime
import pytest

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"
LANGUAGE = sorted(path.parent.name for path in DATA.glob("*-tiny/reference.safetensors") if (path.parent / "config.json").exists())
IMAGES = {
    "cifarnet": {"model_type": "cifar_net", "hidden_sizes": [6, 16, 120, 84]},
    "resnet-tiny": {"model_type": "torchvision_resnet", "hidden_sizes": [8, 16, 32], "depths": [1, 1, 1], "layer_type": "basic", "large_stem": False},
}
# The tolerance: both programs compute in fp32 and add in different orders, in a few layers of some dozen channels. Logits are a few units.
CLOSE = dict(rtol=1e-5, atol=1e-5)


def tensors(file, *names):
    """Of a safetensors file."""
    raw = file.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    types = {"F32": np.float32, "I64": np.int64, "I32": np.int32}
    for name in names:
        at, to = header[name]["data_offsets"]
        yield np.frombuffer(raw[begin + at : begin + to], types[header[name]["dtype"]]).reshape(header[name]["shape"])


def exported(model, out, *more):
    command = [os.environ["SPILLWAY_PROGRAM"], "export", str(model), "--out", str(out), "--format", "onnx", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    session = onnxruntime.InferenceSession(str(out / "model.onnx"), providers=["CPUExecutionProvider"])
    assert "onnxruntime.InferenceSession" in done.stdout
    return session


def run(session, past, ids, mask, positions):
    names = [output.name for output in session.get_outputs()]
    values = dict(zip(names, session.run(names, {"input_ids": ids, "attention_mask": mask, "position_ids": positions, **past})))
    logits = values.pop("logits")
    return logits, {name.replace("present", "past_key_values"): value for name, value in values.items()}


def no_past(session, rows):
    return {i.name: np.zeros((rows, i.shape[1], 0, i.shape[3]), np.float32) for i in session.get_inputs() if i.name.startswith("past")}


def test_all_families_have_a_fixture():
    types = {json.loads((DATA / name / "config.json").read_text())["model_type"] for name in LANGUAGE}
    assert types >= {"gpt2", "llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "gemma2", "gemma3_text", "phi3", "olmo2"}


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_model(name, tmp_path):
    ids, want = (np.array(value) for value in tensors(DATA / name / "reference.safetensors", "input_ids", "logits"))
    ids = ids.astype(np.int64)
    rows, length = ids.shape
    positions, mask = np.tile(np.arange(length), (rows, 1)), np.ones_like(ids)
    session = exported(DATA / name, tmp_path / "onnx", "--dtype", "fp32")

    whole, _ = run(session, no_past(session, rows), ids, mask, positions)
    np.testing.assert_allclose(whole, want, **CLOSE)
    moved = ids.copy()
    moved[:, 0] = (moved[:, 0] + 1) % want.shape[2]
    assert not np.allclose(run(session, no_past(session, rows), moved, mask, positions)[0], want, **CLOSE)

    past = no_past(session, rows)
    for begin, end in [(0, length // 2), *((t, t + 1) for t in range(length // 2, length))]:
        part, past = run(session, past, ids[:, begin:end], mask[:, :end], positions[:, begin:end])
        np.testing.assert_allclose(part, want[:, begin:end], **CLOSE)

    # Three positions of padding before the rows must not change the results.
    padded = np.pad(ids, ((0, 0), (3, 0)))
    unseen = np.pad(mask, ((0, 0), (3, 0)))
    shifted = np.pad(positions, ((0, 0), (3, 0)))
    np.testing.assert_allclose(run(session, no_past(session, rows), padded, unseen, shifted)[0][:, 3:], want, **CLOSE)


@pytest.mark.parametrize("name", IMAGES)
def test_image_model(name, tmp_path):
    images, before = (np.array(value) for value in tensors(DATA / name / "reference.safetensors", "images", "eval_before/logits"))
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(DATA / name / "model.safetensors", model)
    (model / "config.json").write_text(json.dumps(IMAGES[name] | {"num_labels": 10, "num_channels": 3, "image_size": 32}))
    session = exported(model, tmp_path / "onnx")
    np.testing.assert_allclose(session.run(["logits"], {"pixel_values": images[0]})[0], before, **CLOSE)


def test_half(tmp_path):
    ids, want = (np.array(value) for value in tensors(DATA / "qwen3-tiny" / "reference.safetensors", "input_ids", "logits"))
    ids = ids.astype(np.int64)
    session = exported(DATA / "qwen3-tiny", tmp_path / "onnx", "--dtype", "fp16")
    past = {name: value.astype(np.float16) for name, value in no_past(session, len(ids)).items()}
    got, _ = run(session, past, ids, np.ones_like(ids), np.tile(np.arange(ids.shape[1]), (len(ids), 1)))
    assert got.dtype == np.float32
    apart = np.abs(got - want).max() / np.abs(want).max()
    assert 1e-5 < apart < 1e-2  # weights and activations have 11 significant bits


@pytest.mark.parametrize("flags, words", [(["--dtype", "bf16"], "expected fp32 or fp16"), (["--merge"], "expected a run or a checkpoint with adapters")])
def test_refusals(flags, words, tmp_path):
    command = [os.environ["SPILLWAY_PROGRAM"], "export", str(DATA / "llama-tiny"), "--out", str(tmp_path / "onnx"), "--format", "onnx", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and words in done.stderr
    assert not list(tmp_path.iterdir())
