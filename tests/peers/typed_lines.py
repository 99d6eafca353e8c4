"""What PyTorch gives for the lines of python/tests/typed_lines.py: prints python/tests/typed_lines.json. Usage: python tests/peers/typed_lines.py
(wants torch and numpy)"""

import json
import pathlib
import sys

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python/tests"))
import typed_lines  # noqa: E402

rows = [f"{json.dumps(line)}: {json.dumps(typed_lines.run(line, torch, np))}" for line in typed_lines.LINES]
print("{\n" + ",\n".join(rows) + "\n}")
