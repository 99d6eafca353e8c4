#!/usr/bin/env bash
# A model larger than its memory: GPT-2 of 1.5 billion parameters, bf16 with fp32 master weights and moments (28 GB of training state),
# takes three steps in 4 GiB of memory. All training state is stored on one disk, which holds two generations of it (47 GiB). Prints the
# plan before the run, and how the run compares with the plan after it.
#   examples/gpt2_1.5b.sh [SCRATCH_FOLDER]
# As root, if a memory cgroup (version 1 or 2) can be made, the kernel enforces the 4 GiB; otherwise only Spillway's budgets do.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=${1:-build/scratch-1.5b}
limit=$((4 << 30))
mkdir -p "$scratch" build/data
[ -s build/data/kjv.txt ] || bible -f gen1:1-rev22:21 </dev/null > build/data/kjv.txt

make_cgroup() {
  local root=/sys/fs/cgroup
  if [ -d "$root/memory" ]; then
    group=$root/memory/spillway-1.5b peak=memory.max_usage_in_bytes
    mkdir -p "$group" && echo $limit > "$group/memory.limit_in_bytes"
  else
    group=$root/spillway-1.5b peak=memory.peak
    mkdir -p "$group" && echo $limit > "$group/memory.max"
  fi
} 2>/dev/null

leave_cgroup() {
  [ -z "$group" ] || { echo $BASHPID > "$(dirname "$group")/cgroup.procs" && rmdir "$group"; }
}

group=""
trap leave_cgroup EXIT
if [ "$(id -u)" = 0 ] && make_cgroup; then
  echo $BASHPID > "$group/cgroup.procs"
  echo "memory cgroup of 4 GiB: $group"
else
  group=""
  echo "no memory cgroup can be made here: only Spillway's budgets limit the memory"
fi
build/release/spillway train --model gpt2-1.5b --precision bf16 --tokenizer bytes --data build/data/kjv.txt \
  --sequence-length 64 --micro-batch-size 1 --steps 3 --learning-rate 1e-4 --warmup-steps 1 --resume never \
  --device-memory 1280MiB --host-memory 768MiB --nvme "$scratch" \
  --place-parameters nvme --place-gradients nvme --place-optimizer nvme \
  --no-final-checkpoint --out "$(mktemp -d build/run-1.5b-XXXX)"
[ -z "$group" ] || echo "peak memory of the cgroup, with the page cache: $(($(cat "$group/$peak") >> 20)) MiB of 4096 MiB"
