"""execute.py FROM TO: runs each notebook of a folder, in a folder of its own that goes again, and leaves it with its outputs in another one."""

import pathlib
import sys
import tempfile

import nbformat
from nbclient import NotebookClient

source, target = map(pathlib.Path, sys.argv[1:])
for path in sorted(source.glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as place:
        # Without its warning that loopback is not encrypted.
        NotebookClient(notebook, timeout=300, kernel_name="python3", extra_arguments=["--log-level=ERROR"],
                       resources={"metadata": {"path": place}}).execute()
    nbformat.write(notebook, target / path.name)
