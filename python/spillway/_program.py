"""The program `spillway`, which lies in this package."""

from __future__ import annotations

import os
import sys

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "spillway")


def main() -> None:
    os.execv(path, ["spillway"] + sys.argv[1:])
