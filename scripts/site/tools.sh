#!/usr/bin/env bash
# MkDocs and Jupyter from PyPI into build/tools/site, whole or not at all, unless those of requirements.txt are there already. PYTHON: whose.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=build/tools/site
cmp -s scripts/site/requirements.txt "$tools/requirements.txt" && exit 0
rm -rf "$tools" "$tools.part"
mkdir -p build/tools
"${PYTHON:-python3}" -m pip install -q --root-user-action=ignore --target "$tools.part" -r scripts/site/requirements.txt >build/setup-site.log 2>&1
cp scripts/site/requirements.txt "$tools.part/"
mv "$tools.part" "$tools"
