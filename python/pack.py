#!/usr/bin/env python3
"""pack.py PACKAGES OUT: a wheel of the package folder that `cmake --install --component python` left in PACKAGES, without another build.

The wheel has what pip would make from pyproject.toml: its metadata is read from there. scripts/wheel.sh then gives it the system's
libraries, and the tag of the systems that it runs on. Prints the wheel's path. Needs Python 3.11 (or pip's own tomli).
"""

import base64
import hashlib
import pathlib
import re
import sys
import sysconfig
import zipfile

try:
    import tomllib
except ImportError:
    from pip._vendor import tomli as tomllib

root = pathlib.Path(__file__).resolve().parent.parent


def tag(package: pathlib.Path) -> str:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    (core,) = package.glob("_core.*.so")
    if core.name == "_core.abi3.so":
        return f"cp312-abi3-{platform}"
    version = re.search(r"cpython-(\d+)", core.name)
    return f"cp{version[1]}-cp{version[1]}-{platform}"


def metadata(project: dict, version: str) -> str:
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {version}", f"Summary: {project['description']}",
             f"License-Expression: {project['license']}", f"Requires-Python: {project['requires-python']}"]
    lines += [f"License-File: {file}" for file in project["license-files"]]
    lines += [f"Classifier: {each}" for each in project["classifiers"]]
    for extra, needed in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"] + [f'Requires-Dist: {each}; extra == "{extra}"' for each in needed]
    readme = (root / project["readme"]).read_text()
    return "\n".join(lines + ["Description-Content-Type: text/markdown", "", readme])


def main(packages: pathlib.Path, out: pathlib.Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    version = re.search(r"project\(spillway VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text())[1]
    package = packages / "spillway"
    wheel_tag = tag(package)
    info = f"spillway-{version}.dist-info"
    scripts = "".join(f"{name} = {entry}\n" for name, entry in project["scripts"].items())
    files = {str(path.relative_to(packages)): path.read_bytes() for path in sorted(package.rglob("*")) if path.is_file()}
    programs = {str(path.relative_to(packages)) for path in (package / "bin").iterdir()}
    files[f"{info}/METADATA"] = metadata(project, version).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: spillway\nRoot-Is-Purelib: false\nTag: {wheel_tag}\n".encode()
    files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}".encode()
    files[f"{info}/licenses/LICENSE"] = (root / "LICENSE").read_bytes()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()

    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"spillway-{version}-{wheel_tag}.whl"
    part = wheel.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))  # a fixed date, so that equal files give an archive with equal bytes
            entry.external_attr = (0o100755 if name in programs else 0o100644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    part.replace(wheel)
    print(wheel)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
