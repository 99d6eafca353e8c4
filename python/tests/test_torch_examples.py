"""examples/torch_*.py run, and end by comparing their losses with PyTorch's own; without PyTorch they say what is missing. The Python that
docs/torch.md and its notebook show runs as it stands."""

import os
import subprocess
import sys

import pytest

from test_docs import DOCS, FENCE, NEED_TORCH, run as run_blocks, run_cells

EXAMPLES = sorted((DOCS.parent / "examples").glob("torch_*.py"))


def run(example, *arguments, path=()):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, example, *arguments], capture_output=True, text=True, check=False, env=environment)


def test_there_are_five():
    assert [example.stem for example in EXAMPLES] == ["torch_causal_lm", "torch_experts", "torch_images", "torch_unet", "torch_vision_language"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_has_pytorchs_losses(example, tmp_path):
    for needed in ("torch", "safetensors", "transformers"):
        pytest.importorskip(needed)
    done = run(example, tmp_path / "run", tmp_path / "scratch")
    assert done.returncode == 0, done.stderr
    assert "PyTorch alone has the same losses" in done.stdout and "nvme" in done.stderr
    assert (tmp_path / "run" / "checkpoints").is_dir()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_without_pytorch_says_so(example, tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")\n")
    done = run(example, path=[str(tmp_path)])
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{example.name}: expected PyTorch") and line.split(": pip install ")[0].endswith("No module named 'torch'")


def test_every_block_of_the_page_runs(tmp_path, monkeypatch):
    for needed in ("torch", "safetensors", "transformers"):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    blocks = FENCE.findall((DOCS / "torch.md").read_text())
    assert len(blocks) == 8
    run_blocks(blocks, "docs/torch.md")
    assert {run.name for run in (tmp_path / "runs").iterdir()} == {"shortest", "loop", "points", "meta", "threads"}
    assert sorted(os.listdir(tmp_path / "trained")) == ["config.json", "generation_config.json", "model.safetensors"]


@pytest.mark.parametrize("notebook", NEED_TORCH, ids=lambda notebook: notebook.stem)
def test_its_notebook_runs(notebook, tmp_path, monkeypatch):
    for needed in ("torch", "safetensors", "transformers"):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    run_cells(notebook)
