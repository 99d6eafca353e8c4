#!/usr/bin/env bash
# wheel.sh BUILD PYTHON: makes the wheel of this build, installs it into an empty environment without a compiler or anything else on PATH, and
# trains the quickstart's model there, by the program and by the module: with the losses of the build's own program, to the last digit.
set -euo pipefail
build=$1 python=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache OMP_NUM_THREADS=1

wheel=$(SPILLWAY_BUILD=$build PYTHON=$python "$source/scripts/wheel.sh" "$work/wheels")
bytes=$(stat -c %s "$wheel")
echo "$(basename "$wheel"): $bytes bytes"
[ "$bytes" -le $((80 << 20)) ] || { echo "expected at most 80 MiB" >&2; exit 1; }
[[ $wheel == *-manylinux_* ]] || { echo "expected a manylinux wheel, got $wheel" >&2; exit 1; }
libraries=$("$python" -m zipfile -l "$wheel" | grep -c 'libspillway')
[ "$libraries" -eq 1 ] || { echo "expected libspillway once, got it $libraries times" >&2; exit 1; }

"$python" -m venv --without-pip "$work/env"
env -u PYTHONPATH "$python" -m pip --python "$work/env/bin/python" install -q --no-index --no-deps "$wheel"
for i in $(seq 400); do echo "And it was so, $i, and the evening and the morning were the day $((i % 7))."; done >"$work/text.txt"
flags=(--model "$source/examples/models/gpt2-bible" --from-scratch --tokenizer bytes --data "$work/text.txt" --sequence-length 128
  --micro-batch-size 2 --gradient-accumulation-steps 2 --steps 3 --learning-rate 2e-3 --device cpu --device-memory 16MiB
  --host-memory 256MiB --place-optimizer nvme --tensorboard off)
alone() { (cd "$work" && env -i PATH="$work/env/bin" HOME="$work" XDG_CACHE_HOME="$work/cache" "$@"); }

"$build/spillway" train "${flags[@]}" --nvme "$work/scratch" --out "$work/build" >/dev/null 2>&1
alone spillway train "${flags[@]}" --nvme scratch --out program >/dev/null 2>&1
alone python - "$source/examples/models/gpt2-bible" <<'PYTHON'
import sys
import spillway
steps = []
result = spillway.Trainer(model=sys.argv[1], from_scratch=True, tokenizer="bytes", data="text.txt", sequence_length=128, micro_batch_size=2,
                          gradient_accumulation_steps=2, steps=3, learning_rate=2e-3, device="cpu", device_memory="16MiB",
                          host_memory="256MiB", place_optimizer="nvme", tensorboard="off", nvme="scratch", out="module").train(steps.append, log=lambda line: None)
assert result.finished and len(steps) == 3
PYTHON
numbers() { grep -o '"\(step\|loss\|grad_norm\)":[^,]*' "$work/$1/metrics.jsonl"; }
[ "$(numbers build | wc -l)" -eq 9 ] || { echo "expected 3 steps of 3 numbers, got $(numbers build)" >&2; exit 1; }
# The README's example, and the same run by the program.
cp "$work/text.txt" "$work/kjv.txt"
sed -n '/^```python$/,/^```$/p' "$source/README.md" | grep -v '^```' >"$work/readme.py"
grep -q '^import spillway' "$work/readme.py" || { echo "expected Python in README.md, got none" >&2; exit 1; }
alone python readme.py >"$work/readme.txt" 2>"$work/readme.log" || { cat "$work/readme.log" >&2; exit 1; }
alone spillway train --model gpt2-tiny --data kjv.txt --sequence-length 64 --steps 20 --device cpu --device-memory 8MiB --host-memory 256MiB \
  --out runs/program >/dev/null 2>&1
diff <(grep -o '"loss":[^,]*' "$work/runs/python/metrics.jsonl") <(grep -o '"loss":[^,]*' "$work/runs/program/metrics.jsonl")
[ "$(grep -c '^[0-9]* [0-9.]*$' "$work/readme.txt")" -eq 20 ] || { cat "$work/readme.txt" >&2; exit 1; }

for other in program module; do
  diff <(numbers build) <(numbers "$other") || { echo "the numbers of $other differ from the build's" >&2; exit 1; }
done
# Ranks compare builds: the program and the module are one.
build_of() { grep -om 1 'build [0-9a-f]\{16,\}' "$work/$1/log.txt"; }
[ "$(build_of program)" = "$(build_of module)" ] || { echo "expected one build, got $(build_of program) and $(build_of module)" >&2; exit 1; }
numbers module | tail -n 3
