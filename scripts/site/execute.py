"""execute.py FROM TO: runs each notebook of the folder FROM in a temporary folder, and writes it with its outputs to the folder TO. A notebook
whose metadata say that it needs packages which are not installed is written as it is, and is named."""

import importlib.util
import pathlib
import sys
import tempfile

import nbformat
from nbclient import NotebookClient

source, target = map(pathlib.Path, sys.argv[1:])
for path in sorted(source.glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    missing = [name for name in notebook.metadata.get("needs", []) if importlib.util.find_spec(name) is None]
    if missing:
        print(f"{path.name}: not run, because {' and '.join(missing)} are not installed: scripts/setup.sh --soak installs them", file=sys.stderr)
        nbformat.write(notebook, target / path.name)
        continue
    with tempfile.TemporaryDirectory() as place:
        # Without its warning that loopback is not encrypted.
        NotebookClient(notebook, timeout=300, kernel_name="python3", extra_arguments=["--log-level=ERROR"],
                       resources={"metadata": {"path": place}}).execute()
    nbformat.write(notebook, target / path.name)
