#!/usr/bin/env bash
# Steps that the disk bounds: gpt2-124m in bf16, (4, 64), under a kernel's limit of 200 MB/s for reads and as much for writes, with the
# optimizer on nvme and with everything there. Prints measured beside max(compute, bytes / rate) and beside the prediction; exit 1 when a
# step takes more than 10 % longer than the first or is more than 15 % off the second, 77 (skipped) with the reason where no limit can be set.
#   bench/blkio_limited.sh [SCRATCH_FOLDER [STEPS]]     needs root, a blkio (v1) or io (v2) control group, a folder on a disk
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=${1:-build/scratch-blkio} steps=${2:-5} rate=200000000
spillway=build/release/spillway
skip() { echo "skipped: $1"; exit 77; }

[ "$(id -u)" = 0 ] || skip "only root can set a limit"
mkdir -p "$scratch" build/data
device=$(stat -c '%Hd:%Ld' "$scratch")
if [ -e "/sys/dev/block/$device/partition" ]; then device=$(cat "/sys/dev/block/$device/../dev"); fi
[ -e "/sys/dev/block/$device" ] || skip "$scratch lies on no block device ($device)"
[ -s build/data/kjv.txt ] || bible -f gen1:1-rev22:21 </dev/null > build/data/kjv.txt

root=/sys/fs/cgroup group=""
if [ -d $root/blkio ]; then
  group=$root/blkio/spillway-bench-$$
  mkdir "$group" || skip "no blkio group can be made"
  for way in read write; do echo "$device $rate" > "$group/blkio.throttle.${way}_bps_device" || skip "the kernel sets no limit on $device"; done
elif [ -e $root/cgroup.controllers ] && grep -qw io $root/cgroup.controllers; then
  echo +io > $root/cgroup.subtree_control || skip "the io controller cannot be given on"
  group=$root/spillway-bench-$$
  mkdir "$group" && echo "$device rbps=$rate wbps=$rate" > "$group/io.max" || skip "the kernel sets no limit on $device"
else
  skip "no blkio or io control group"
fi
out=$(mktemp -d)
trap 'rm -rf "$out"; rmdir "$group"' EXIT

train() {  # NAME placement...
  local name=$1
  shift
  (
    echo "$BASHPID" > "$group/cgroup.procs"
    exec $spillway train --model gpt2-124m --precision bf16 --tokenizer bytes --data build/data/kjv.txt --sequence-length 64 \
      --micro-batch-size 4 --steps "$steps" --learning-rate 1e-4 --warmup-steps 1 --no-final-checkpoint --nvme "$scratch" \
      --out "$out/$name" --quiet "$@" > "$out/$name.log" 2>&1
  ) || { cat "$out/$name.log"; exit 1; }
  python3 - "$out/$name/metrics.jsonl" "$rate" "$name" <<'P'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1])][2:]
rate, name = float(sys.argv[2]), sys.argv[3]
middle = lambda value: statistics.median(value(row) for row in rows)
measured, predicted = middle(lambda r: r["step_ms"]), middle(lambda r: r["predicted_ms"])
compute = middle(lambda r: r["phase_ms"]["lane_compute"])
disk = max(middle(lambda r: r[way]["nvme"]) for way in ("read_bytes", "written_bytes")) / rate * 1e3
bound = max(compute, disk)
print(f"{name:<34} step {measured:7.0f} ms  max(compute {compute:.0f}, disk {disk:.0f}) {bound:7.0f} ms {measured / bound - 1:+6.1%}"
      f"  predicted {predicted:7.0f} ms {measured / predicted - 1:+6.1%}  bound by {rows[-1]['bound_by']}")
sys.exit(measured > 1.10 * bound or abs(measured / predicted - 1) > 0.15)
P
}

failed=0
train "optimizer on nvme" --place-parameters device --place-gradients device --place-optimizer nvme || failed=1
train "everything on nvme, in backward" --place-parameters nvme --place-gradients nvme --place-optimizer nvme \
  --optimizer-overlap backward --gradient-clipping 0 || failed=1
exit $failed
