#!/usr/bin/env python3
"""Collects what links programs of a build again on another machine, for scripts/gpu_check/mend.sh.

  mend_parts.py BUILD FOLDER PROGRAM...

FOLDER gets nvcc.flags (a word a line, @TREE@ for the source tree), for each program a file NAME.link (the words of its link command, a line
each: @HERE@ for FOLDER, @LIB@ for the archive's folder of shared libraries), and the objects and static libraries that these name.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

OF_THE_C_LIBRARY = re.compile(r"lib(rt|dl|pthread|m|c|util)\.a$")  # that machine's own


def commands(build: Path, target: str) -> list[str]:
    return subprocess.run(["ninja", "-C", build, "-t", "commands", target], check=True, capture_output=True, text=True).stdout.splitlines()


def kept(path: Path, name: str, folder: Path) -> str:
    if not (folder / name).exists():
        shutil.copy(path, folder / name)
    return "@HERE@/" + name


def soname(path: Path) -> str:
    said = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
    return re.search(r"SONAME.*\[(.*)\]", said).group(1)


def link_words(build: Path, folder: Path, command: str) -> list[str]:
    words = command.split()
    words = words[words.index("&&") + 2:len(words) - words[::-1].index("&&") - 1]  # ": && c++ ... && :"
    search = [Path(word[2:]) for word in words if word.startswith("-L")]
    result, skip = [], False
    for word in words:
        path = build / word
        if skip or word == "-o" or word.startswith("-L"):
            skip = word == "-o"
        elif word.endswith((".o", ".a")) and not OF_THE_C_LIBRARY.search(word):
            result.append(kept(path, path.name if word.startswith("/") else word.replace("/", "_"), folder))
        elif re.search(r"\.so(\.[0-9.]+)?$", word):
            result.append("@LIB@/" + soname(path))
        elif word.startswith("-lcuda"):
            library = f"lib{word[2:]}.a"
            result.append(kept(next(at for at in search if (at / library).exists()) / library, library, folder))
        elif not word.endswith(".a"):
            result.append(word)
    return result


def nvcc_flags(source: Path, command: str) -> list[str]:
    """Without the GPU's kind, which is that machine's, warnings as errors, of which its compilers may know more, and the lists of headers."""
    words = command.split()
    begin = next(i for i, word in enumerate(words) if word.endswith("nvcc")) + 1
    kept_words = re.sub(r"(^| )(--generate-code\S*|--Werror\S*|-MD|-M[TF] \S+)(?= |$)", "", " ".join(words[begin:words.index("-x")])).split()
    return [re.sub(rf"^-I{re.escape(str(source))}", "-I@TREE@", word) for word in kept_words]


def main() -> None:
    build, folder, programs = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), sys.argv[3:]
    source = Path(re.search(r"^CMAKE_HOME_DIRECTORY:.*=(.*)$", (build / "CMakeCache.txt").read_text(), re.M).group(1))
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        all_commands = commands(build, program)
        (folder / f"{Path(program).name}.link").write_text("\n".join(link_words(build, folder, all_commands[-1])) + "\n")
        compiled = next((line for line in all_commands if " -x cu " in line and "/kernels/" in line), None)
        if compiled:
            (folder / "nvcc.flags").write_text("\n".join(nvcc_flags(source, compiled)) + "\n")


main()
