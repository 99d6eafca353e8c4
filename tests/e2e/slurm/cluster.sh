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
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }

cat >"$folder/task_prolog.sh" <<END
#!/bin/sh
mkdir -p $folder/scratch/\$SLURM_JOB_ID
echo export SLURM_TMPDIR=$folder/scratch/\$SLURM_JOB_ID
END
chmod +x "$folder/task_prolog.sh"

cat >"$SLURM_CONF" <<END
ClusterName=spillway
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
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
for _ in $(seq 50); do [ -S "$folder/munge.socket" ] && break; sleep 0.1; done
slurmctld -D -c 2>"$folder/log/slurmctld.err" & pids+=($!)
slurmd -D -N "$host" 2>"$folder/log/slurmd.err" & pids+=($!)
for _ in $(seq 100); do [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && break; sleep 0.1; done
if [ "$(sinfo -h -o %T)" != idle ]; then echo "cluster.sh: the node did not come up"; tail -n 20 "$folder"/log/*; exit 1; fi
status=0
"$@" || status=$?
exit $status
