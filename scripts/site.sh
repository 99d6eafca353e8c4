#!/usr/bin/env bash
# Builds the site: docs/, README, the notebooks as they ran here, and the references of C++ and Python. Its pages ask nobody for anything, so
# they may be served from anywhere or opened as files. A link that leads nowhere, or a notebook that fails, is an error.
#   scripts/site.sh [FOLDER [BUILD]]    leaves the site in FOLDER (default: build/site), and nothing of an older one
# BUILD: a build folder that has the Python module (default: SPILLWAY_BUILD, else the newest such folder in build/); PYTHON: the Python that it
# was built for. MkDocs and Jupyter come from PyPI into build/tools/site at the first time, Doxygen from the system (scripts/setup.sh --tests
# installs it).
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${1:-$source/build/site}")
built=${2:-${SPILLWAY_BUILD:-$(ls -td "$source"/build/*/python/spillway/_core.pyi 2>/dev/null | sed 's|/python/spillway/_core.pyi$||;q')}}
[ -z "$built" ] || built=$(realpath -m "$built")
cd "$source"
python=${PYTHON:-python3}
tools=$PWD/build/tools/site
fail() {
  echo "site: $1" >&2
  exit 3
}
[ -e "$built/python/spillway/_core.pyi" ] || fail "expected a build folder with the Python module, got ${built:-none}: build it with nanobind there (scripts/setup.sh --tests), or name another folder: scripts/site.sh FOLDER BUILD"
command -v doxygen >/dev/null || fail "expected doxygen, got none: apt-get install doxygen, or scripts/setup.sh --tests"
PYTHON=$python scripts/site/tools.sh || fail "expected MkDocs and Jupyter from PyPI, got none: see build/setup-site.log"

mkdir -p "$(dirname "$out")"
[ -z "$(ls -A "$out" 2>/dev/null)" ] || [ -e "$out/search/index.js" ] ||
  fail "$out holds what is no site: name a new folder, or that of an older site"
stage=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$stage"' EXIT
(cat Doxyfile && echo "OUTPUT_DIRECTORY = $stage/doxygen" && echo "GENERATE_TAGFILE = $stage/doxygen/spillway.tag") >"$stage/Doxyfile"
mkdir "$stage/doxygen" "$stage/notebooks"
doxygen "$stage/Doxyfile"
export PYTHONPATH=$built/python:$tools:$PWD/build/tools/torch${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
JUPYTER_PATH=$tools/share/jupyter "$python" scripts/site/execute.py docs/notebooks "$stage/notebooks"
SPILLWAY_SITE_NOTEBOOKS=$stage/notebooks SPILLWAY_SITE_DOXYGEN=$stage/doxygen SPILLWAY_SITE_PACKAGES=$built/python \
  SPILLWAY_SITE_ROOMS=$built/rooms.txt "$python" -m mkdocs build -f scripts/site/mkdocs.yml -d "$stage/site" >"$stage/said.txt" 2>&1 || {
  grep -E '^(WARNING|ERROR|Aborted|Traceback|\w*Error)' "$stage/said.txt" >&2 || cat "$stage/said.txt" >&2
  exit 1
}
rm -rf "$out"
mv "$stage/site" "$out"
chmod 755 "$out"
echo "$out/index.html"
