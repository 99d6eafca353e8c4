#!/usr/bin/env bash
# A Slurm of one node, for as long as a command runs: cluster.sh FOLDER COMMAND [ARGUMENTS]. Its munge, daemons, ports and state lie in
# FOLDER and end with the command; nothing of the machine's own Slurm is touched. Jobs get SLURM_TMPDIR from the task prolog, as on
# clusters with node-local scratch. Exits with 77 and a reason where it cannot be had. Needs root: slurmd starts tasks as their user.
set -euo pipefail

skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "a Slurm of our own needs root"
for tool in munged slurmctld slurmd srun sbatch; do
  PATH=$PATH:/usr/sbin command -v $tool >/dev/null || skip "$tool is not installed (Debian: slurm-wlm munge)"
done
export PATH=$PATH:/usr/sbin

folder=$(mkdir -p "$1" && cd "$1" && pwd); shift
mkdir -p "$folder"/{state,spool,scratch,log}
export SLURM_CONF=$folder/slurm.conf
host=$(hostname -s)
# Below what the system and other tests give out: it stays free until the daemon takes it.
free_port() {
  local port
  while port=$((12000 + RANDOM % 8000)); (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo $port
}

cat >"$folder/task_prolog.sh" <<END
#!/bin/sh
mkdir -p $folder/scratch/\$SLURM_JOB_ID
echo export SLURM_TMPDIR=$folder/scratch/\$SLURM_JOB_ID
END
chmod +x "$folder/task_prolog.sh"

# cred_expire: so long a job that is queued again waits, and so long a daemon on a busy machine may take to start one. FirstJobId: ranks meet
# by their job's number, and another Slurm of this machine may be running.
cat >"$SLURM_CONF" <<END
ClusterName=spillway
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=10
MessageTimeout=100
CryptoType=crypto/munge
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/slurmd
TaskProlog=$folder/task_prolog.sh
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
ReturnToService=2
FirstJobId=$((10000 + RANDOM * 10 + RANDOM % 10))
JobRequeue=1
KillWait=10
MpiDefault=none
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 RealMemory=4096 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
END

pids=()
end() {
  scontrol shutdown >/dev/null 2>&1 || true
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
}
trap end EXIT

(umask 077 && dd if=/dev/urandom of="$folder/munge.key" bs=128 count=1 status=none)
munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munge.pid" \
  --log-file="$folder/log/munged" --seed-file="$folder/munge.seed" 2>"$folder/log/munged.err" & pids+=($!)
until_true() {  # what has not come after minutes hangs
  local end=$((SECONDS + 240))
  until "$@"; do [ $SECONDS -lt $end ] || return 1; sleep 0.1; done
}
node_is_idle() { [ "$(sinfo -h -o %T 2>/dev/null)" = idle ]; }
until_true [ -S "$folder/munge.socket" ] || { echo "cluster.sh: munged did not come up"; cat "$folder"/log/munged*; exit 1; }
slurmctld -D -c 2>"$folder/log/slurmctld.err" & pids+=($!)
slurmd -D -N "$host" 2>"$folder/log/slurmd.err" & pids+=($!)
until_true node_is_idle || { echo "cluster.sh: the node did not come up"; tail -n 20 "$folder"/log/*; exit 1; }
status=0
"$@" || status=$?
exit $status
