#!/usr/bin/env bash
# From nothing to a trained model: installs what is missing, builds, takes the King James Bible from the package bible-kjv and trains a
# small GPT-2 on its bytes, on the CPU, with a device budget smaller than the training state. Run again, it trains at once.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
source scripts/steps.sh
# Code for GPUs takes as long to compile as all the rest: it is left out where no GPU is, unless this build has it already.
if [ ! -e build/release/CMakeCache.txt ] && ! ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
  echo "== no GPU here: building without code for GPUs (with it, where nvcc is: cmake --preset cuda && cmake --build build/cuda)"
  configuring=(-DSPILLWAY_CUDA=OFF)
fi
build release spillway

# All 31,102 verses, one a line with its reference: 4.4 MB of ASCII, one token a byte. Its last 5 % are held out.
if [ ! -s build/data/kjv.txt ]; then
  mkdir -p build/data
  bible -f gen1:1-rev22:21 </dev/null >build/data/kjv.part
  mv build/data/kjv.part build/data/kjv.txt
fi

# The arithmetic: 3,257,856 parameters x 16 bytes (fp32 weight, gradient and two moments) = 49.7 MiB of training state; the device gets
# 16 MiB, activations included. A step is 8 x 2 windows of 128 bytes; 400 steps see each byte of the training text about 0.2 times.
run=runs/quickstart
options=(
  --model examples/models/gpt2-bible --from-scratch --tokenizer bytes
  --data build/data/kjv.txt --validation-fraction 0.05
  --sequence-length 128 --micro-batch-size 2 --gradient-accumulation-steps 8 --steps 400 --learning-rate 2e-3 --warmup-steps 20
  --device cpu --device-memory 16MiB --host-memory 256MiB
  --place-optimizer nvme --nvme build/scratch
  --out "$run"
)
generate=(--model "$run" --prompt "And the LORD said" --max-tokens 200)

rm -rf "$run"
spillway() {
  echo "== build/release/spillway $(printf '%q ' "$@")"
  build/release/spillway "$@"
}
spillway train "${options[@]}"
spillway generate "${generate[@]}"
