"""The program `spillway`, which is part of this package."""

from __future__ import annotations

import os
import sys

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "spillway")


def check_interpreter() -> None:
    """Raises ImportError in a subinterpreter. Called before the module is loaded, because its threads and memory belong to the whole
    process, so that only the main interpreter can use it."""
    import importlib

    for name in ("_interpreters", "_xxsubinterpreters"):  # the module's names since Python 3.13 and before
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError("spillway: expected the main interpreter of the process, got a subinterpreter: import spillway in the main "
                              "interpreter, or in another process")
        return


def main() -> None:
    os.execv(path, ["spillway"] + sys.argv[1:])
