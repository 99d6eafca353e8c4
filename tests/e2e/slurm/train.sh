#!/usr/bin/env bash
# In a Slurm job: train.sh PROGRAM FOLDER, under cluster.sh. The script that `spillway slurm` prints trains two ranks with the numbers that
# --ranks 2 gives without Slurm; warned by USR1 it saves, is queued again, and ends with the weights of a run nobody disturbed.
set -euo pipefail
program=$1
cd "$2"

fail() {
  echo "FAILED: $1"
  tail -n 40 slurm-*.out 2>/dev/null
  exit 1
}
numbers() { grep -oE '"(step|loss|grad_norm)": ?[^,]*' "$1/metrics.jsonl"; }
same() {
  [ "$(numbers "$1" | wc -l)" -eq $((3 * steps)) ] || fail "$1 has $(numbers "$1" | wc -l) numbers, expected $((3 * steps))"
  cmp <(numbers "$1") <(numbers "$2") || fail "the numbers of $1 and $2 differ"
  for file in model.safetensors optimizer.safetensors; do
    cmp "$1"/checkpoints/step-*"$steps/$file" "$2"/checkpoints/step-*"$steps/$file" || fail "$file of $1 and $2 differs"
  done
}

steps=240  # long beside the time a signal takes to get there
awk 'BEGIN { srand(7); for (i = 0; i < 6000; ++i) print int(rand() * 1000), "bottles of milk" }' >text.txt
flags=(--model gpt2-tiny --data text.txt --sequence-length 64 --micro-batch-size 2 --gradient-accumulation-steps 2 --steps $steps
  --device-memory 64MiB --host-memory 64MiB --zero-stage 3 --place-optimizer nvme --threads 1)

"$program" train "${flags[@]}" --ranks 2 --nvme nvme --out alone >alone.txt 2>&1 || { cat alone.txt; fail "the run without Slurm"; }

"$program" slurm "${flags[@]}" --ranks 2 --time 10m --out job >job.sh
sbatch --wait job.sh >sbatch.txt 2>&1 || fail "the job: $(cat sbatch.txt)"
same job alone
echo "a job of two ranks: the numbers of --ranks 2"

# Warned in the middle. USR1 goes to the tasks of the step, as from Slurm itself shortly before the end.
"$program" slurm "${flags[@]}" --ranks 2 --time 10m --out warned >warned.sh
job=$(sbatch --parsable warned.sh)
for _ in $(seq 600); do
  [ -f warned/metrics.jsonl ] && [ "$(wc -l <warned/metrics.jsonl)" -ge 5 ] && break
  sleep 0.05
done
scancel --signal=USR1 "$job"
for _ in $(seq 600); do
  grep -q "step $steps" "slurm-$job.out" 2>/dev/null && [ -z "$(squeue -h -j "$job" -o %T 2>/dev/null)" ] && break
  [ "$(scontrol -o show job "$job" 2>/dev/null | grep -oE 'JobState=(COMPLETED|FAILED)' || true)" = JobState=COMPLETED ] && break
  sleep 0.1
done
grep -qE "continues at step" "slurm-$job.out" || fail "the warned job did not go on: $(scontrol -o show job "$job" | head -c 400)"
same warned alone
echo "warned and queued again: $(grep -oE 'continues at step [0-9]+ of [0-9]+' "slurm-$job.out" | tail -n 1), the same numbers and weights"
