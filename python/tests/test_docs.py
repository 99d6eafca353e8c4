"""The Python of docs/python.md runs as it stands, in order, in a folder with a text."""

import pathlib
import re

from conftest import TEXT

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_every_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kjv.txt").write_text(TEXT)
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    blocks = [block for language, block in fences if language == ""]
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert len(blocks) == 5
    said = capsys.readouterr().out
    assert "\nTrue runs/mine/checkpoints/step-00000010\n" in said and "it fits" in said and "(2, 256)" in said
    assert (tmp_path / "my-model/model.safetensors").exists()
