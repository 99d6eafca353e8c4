#!/usr/bin/env bash
# In a Slurm job: train.sh PROGRAM FOLDER, under cluster.sh. The script that `spillway slurm` prints trains four ranks with the numbers and
# weights that --ranks 4 gives without Slurm. Warned by USR1 it saves and is queued again, goes on, and has what an undisturbed run has.
set -euo pipefail
program=$1
cd "$2"

fail() {
  echo "FAILED: $1"
  tail -n 60 slurm-*.out 2>/dev/null
  tail -n 40 cluster/log/* 2>/dev/null
  exit 1
}
# Waits for what a command finds true. What has not come after minutes hangs, however busy the machine is.
until_true() {
  local what=$1 end=$((SECONDS + 240))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || fail "$what: $(scontrol -o show job | head -c 2000)"
    sleep 0.1
  done
}
state_of() { scontrol -o show job "$1" | grep -oE 'JobState=[A-Z]+' | cut -d= -f2; }
is_over() { [[ $(state_of "$1") =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)$ ]]; }
is_pending() { [ "$(state_of "$1")" = PENDING ]; }
has_steps() { [ -f "$1/metrics.jsonl" ] && [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ]; }
says() { [ "$(grep -cE "$2" "$1" 2>/dev/null)" -ge "$3" ]; }  # so often

numbers() { grep -oE '"(step|loss|grad_norm)": ?[^,]*' "$1/metrics.jsonl"; }
same() {  # RUN RUN STEPS
  [ "$(numbers "$1" | wc -l)" -eq $((3 * $3)) ] || fail "$1 has $(numbers "$1" | wc -l) numbers, expected $((3 * $3))"
  cmp <(numbers "$1") <(numbers "$2") || fail "the numbers of $1 and $2 differ"
  local file step
  step=checkpoints/step-$(printf %08d "$3")
  for file in model.safetensors optimizer.safetensors; do cmp "$1/$step/$file" "$2/$step/$file" || fail "$file of $1 and $2 differs"; done
}

bible -f gen1:1-lev27:34 </dev/null >text.txt
flags=(--model gpt2-tiny --data text.txt --sequence-length 64 --micro-batch-size 2 --gradient-accumulation-steps 2
  --ranks 4 --pipeline-stages 2 --zero-stage 3 --place-optimizer nvme --device-memory 64MiB --host-memory 64MiB --threads 1
  --lr-schedule constant --warmup-steps 0)
alone() {
  "$program" train "${flags[@]}" --nvme nvme --steps "$2" --out "$1" >"$1.txt" 2>&1 || { cat "$1.txt"; fail "the run without Slurm"; }
}

steps=20
alone alone $steps
"$program" slurm "${flags[@]}" --time 10m --steps $steps --out job >job.sh
job=$(sbatch --parsable job.sh)
until_true "the job did not end" is_over "$job"
[ "$(state_of "$job")" = COMPLETED ] || fail "the job is $(state_of "$job")"
same job alone $steps
echo "a job of four ranks: the numbers and weights of --ranks 4"

# It cannot end but by the warning. USR1 goes to the tasks of the step, as from Slurm itself shortly before the end.
"$program" slurm "${flags[@]}" --time 10m --steps 1000000 --out warned >warned.sh
job=$(sbatch --parsable warned.sh)
out=slurm-$job.out
for times in 1 2; do
  until_true "the job did not train" has_steps warned $((${step:-0} + 5))
  scancel --signal=USR1 "$job"
  until_true "the warned job did not stop" says "$out" "stopped by SIGUSR1 .* saved" $times
  until_true "the warned job was not queued again" is_pending "$job"
  step=$(grep -oE "after step [0-9]+ of" "$out" | tail -n 1 | grep -oE '[0-9]+')
  [ $times -eq 2 ] || until_true "the job did not go on" says "$out" "continues at step $step of" 1
done
scancel "$job"
alone undisturbed "$step"
same warned undisturbed "$step"
went_on=$(grep -oE 'continues at step [0-9]+' "$out")
echo "warned, queued again, $went_on, warned after step $step: the numbers and weights of an undisturbed run"
