"""The Python that docs/ shows runs as it stands: page by page, in order, in a folder with a text; and so do the notebooks."""

import json
import pathlib
import re

import pytest
from conftest import TEXT

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"(?<!-->\n)^```python\n(.*?)^```$", re.M | re.S)  # except blocks that are marked as not to be run
PAGES = [page for page in [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))] if FENCE.search(page.read_text())]
PAGES.remove(DOCS / "torch.md")  # test_torch_examples.py, because it needs PyTorch
NOTEBOOKS = sorted(DOCS.glob("notebooks/*.ipynb"))
NEED_TORCH = [DOCS / "notebooks/torch.ipynb"]  # test_torch_examples.py runs it


def run(blocks, name):
    names: dict = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, str(name), "exec"), names)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kjv.txt").write_text(TEXT)
    blocks = FENCE.findall(page.read_text())
    run(blocks, page)
    if page.stem == "README":
        assert (tmp_path / "runs/python/checkpoints/step-00000020").is_dir()
    if page.stem == "python":
        assert len(blocks) == 7 and (tmp_path / "runs/own/checkpoints/step-00000010").is_dir()
        said = capsys.readouterr().out
        assert "\nTrue runs/mine/checkpoints/step-00000010\n" in said and "it fits" in said and "(2, 256)" in said
        assert (tmp_path / "my-model/model.safetensors").exists()


def cells(notebook):
    return json.loads(notebook.read_text())["cells"]


def run_cells(notebook):
    """Cell by cell, as Jupyter would but without it (scripts/site.sh runs them in Jupyter). Each ends by asserting what it showed."""
    code = ["".join(cell["source"]) for cell in cells(notebook) if cell["cell_type"] == "code"]
    assert "assert" in code[-1]
    run(code, notebook)


@pytest.mark.parametrize("notebook", [each for each in NOTEBOOKS if each not in NEED_TORCH], ids=lambda notebook: notebook.stem)
def test_every_notebook_runs(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_cells(notebook)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebooks_are_kept_without_outputs(notebook):
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(notebook) if cell["cell_type"] == "code")


def test_there_are_four_notebooks():
    assert [notebook.stem for notebook in NOTEBOOKS] == ["fits", "lora", "plan", "torch"]
