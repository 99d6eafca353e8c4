#!/usr/bin/env bash
# train.sh under cluster.sh, in a folder that is gone afterwards: test.sh PROGRAM.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
command -v bible >/dev/null || { echo "skipped: no program bible (Debian: bible-kjv)"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$here/cluster.sh" "$folder/cluster" "$here/train.sh" "$(realpath "$1")" "$folder"
