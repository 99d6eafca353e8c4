#!/usr/bin/env bash
# Checks Spillway on a node with a GPU, without root and without network, by three commands of at most nine minutes. Each is of use alone;
# together they make one report. Lies in the archive of `scripts/bundle.sh --check`; unpack that anywhere and run
#   ./gpu_check.sh tests [FOLDER]       every test that needs a GPU, selftest, NVIDIA's compute-sanitizer
#   ./gpu_check.sh trainings [FOLDER]   short trainings, on the GPU and spilled, nsys's table of kernels, the benches
#   ./gpu_check.sh peers [FOLDER]       PyTorch beside ours, ncu on one block of each direction
# FOLDER (default: gpu_check.out) gets report.md and gpu_check.tar.gz, which is the report and all logs; nothing is written elsewhere. Where
# each command has a node of its own, unpack the archive of one in the folder of the next.
#
# Each step has a time of its own, after which it is ended: a hang costs no other step. All are run whatever fails, and the report is there
# after each. A step is ok, slow (right, but below what is promised of its speed), cut short, absent (what it needs is not on this node), or
# FAILED. Exit status: 0 all are ok or slow; 1 one failed; 3 none failed, but one is absent or cut short; 2 wrong usage.
# GPU_CHECK_TINY=SECONDS: sizes that an emulated GPU does, and so many seconds instead of 540, of which each step has its share.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
parts=(tests trainings peers)
part=${1-} out=${2:-gpu_check.out}
if [[ " ${parts[*]} " != *" ${part:--} "* ]] || [[ $out == -* ]] || [ $# -gt 2 ]; then
  echo "usage: gpu_check.sh tests|trainings|peers [FOLDER]" >&2
  exit 2
fi
if [ ! -x "$here/bin/spillway" ] || [ ! -e "$here/share/gpu_check/tables.py" ]; then
  echo "gpu_check.sh: bin/spillway and share/gpu_check are not beside it: run it in the unpacked archive of scripts/bundle.sh --check" >&2
  exit 2
fi
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
if [ -n "$(ls -A "$out")" ] && [ ! -e "$out/.gpu_check" ] && [ ! -e "$out/report.md" ]; then
  echo "gpu_check.sh: $out holds what is not mine: name a new folder, or one of an earlier check" >&2
  exit 2
fi
logs=$out/logs/$part
rm -rf "$logs" "$out"/{runs,tmp,cache}
mkdir -p "$logs" "$out"/{runs,tmp,cache} && touch "$out/.gpu_check" "$logs/clocks.csv" || exit 2
export LC_ALL=C TMPDIR=$out/tmp XDG_CACHE_HOME=$out/cache CUDA_CACHE_PATH=$out/cache/cuda TORCHINDUCTOR_CACHE_DIR=$out/cache/inductor
export TRITON_CACHE_DIR=$out/cache/triton PYTHONDONTWRITEBYTECODE=1 SPILLWAY_TEST_DATA=$here/share/data
tiny=${GPU_CHECK_TINY-}
[ -z "$tiny" ] || export SPILLWAY_BENCH_TINY=1
# NVIDIA's libraries may be there with PyTorch alone, or where nobody told the loader.
for folder in $(timeout 20 python3 -c 'import sys; print("\n".join(p + "/nvidia/*/lib" for p in sys.path if p))' 2>/dev/null) \
  "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda-*/lib64 ${CONDA_PREFIX:+"$CONDA_PREFIX/lib"}; do
  for libraries in $folder; do [ ! -d "$libraries" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries; done
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}

# ---- steps and the report
rows=() details=() failed=() missing=() facts="" ended="" gpu="" no_gpu="" running="" sampling=""
status=0 took=0 log="" command="" first_sample=0 last_sample=0
trap 'kill $running $sampling 2>/dev/null; report; exit 130' INT TERM
trap 'kill $sampling 2>/dev/null' EXIT
# What a step of so many seconds has: its share of a tiny check, and never more than is left of the whole.
seconds_of() {
  local has=$(($1 * ${tiny:-540} / 540)) left=$((${tiny:-540} - 8 - SECONDS))
  [ $has -ge 1 ] || has=1
  [ $has -le $left ] || has=$left
  echo $has
}
samples() { wc -l <"$logs/clocks.csv"; }

# attempt SECONDS NAME COMMAND...: runs it for so long, with its output in $log; its status is in $status, 124 where it was ended.
attempt() {
  local begin=$SECONDS has
  has=$(seconds_of "$1")
  log=$logs/${2//[^A-Za-z0-9.-]/_}.log command=${*:3} first_sample=$(samples) status=124
  echo "$2 ($has s): $command" >>"$logs/commands.txt"
  if [ "$has" -ge 1 ]; then
    timeout -k 5 "$has" "${@:3}" >"$log" 2>&1 </dev/null &
    running=$!
    wait $running
    status=$?
    running=""
    [ $status -ne 137 ] || [ $((SECONDS - begin)) -lt "$has" ] || status=124
  else
    echo "no time was left for it" >"$log"
  fi
  took=$((SECONDS - begin)) last_sample=$(samples)
}

# row NAME OUTCOME: what came of the last attempt; FAILED ones show their log's end.
row() {
  local shown=${command//$here\//} clocks="– | –" said
  shown=${shown//$out/OUT}
  if [ "$last_sample" -gt "$first_sample" ]; then
    clocks=$(tables clocks "$logs/clocks.csv" "$first_sample" "$last_sample") || clocks="– | –"
  fi
  rows+=("| $1 | $2 | $took | $clocks | \`${shown:0:400}\` |")
  printf '%4d s  %-34s %s\n' $SECONDS "$1" "${2:0:120}"
  case $2 in
    ok*|slow*) ;;
    "cut short"*|absent*) missing+=("$1") ;;
    *)
      failed+=("$1")
      said=$(tail -n 60 "$log")
      [ -z "$said" ] || detail "$1: the end of its log" "$said"
      ;;
  esac
  report
}
# judged NAME OUTCOME WHAT: a row that no command of its own stands behind.
judged() {
  took=0 command=$3 log=/dev/null first_sample=0 last_sample=0
  row "$1" "$2"
}
detail() { details+=("### $1"$'\n\n```\n'"$2"$'\n```\n'); }
show() { details+=("### $1"$'\n\n'"$2"$'\n'); }
tables() { python3 "$here/share/gpu_check/tables.py" "$@" 2>&1; }
count_of() { printf '%s\n' "${rows[@]}" | grep -c "^| [^|]* | $1"; }
counts() {
  echo "${#rows[@]} steps, ${#failed[@]} failed, $(count_of absent) absent, $(count_of 'cut short') cut short, $(count_of slow) slow"
}

# This part's page, and all parts as one. A part that is under way has not come to its end, whatever has become of it.
report() {
  local each
  {
    echo "## $part: $(counts), $SECONDS s${ended:- so far: FAILED, it has not come to its end}"
    printf '\n%s\n\n| step | outcome | s | SM clock, median | power, mean | command |\n|---|---|---|---|---|---|\n' "$facts"
    printf '%s\n' "${rows[@]}" '' "${details[@]}"
  } >"$logs/part.md"
  {
    echo "# Spillway on a GPU"
    echo
    for each in "${parts[@]}"; do
      if [ -e "$out/logs/$each/part.md" ]; then
        cat "$out/logs/$each/part.md"
      else
        printf '## %s: absent, not run: gpu_check.sh %s\n\n' "$each" "$each"
      fi
    done
  } >"$out/report.md"
}

outcome() {
  case $status in
    0) echo ok ;;
    124) [ $took -gt 0 ] && echo "FAILED: ended after $took s" || echo "FAILED: $(tail -n 1 "$log")" ;;
    137) echo "FAILED with 137: killed, perhaps for its memory" ;;
    *) echo "FAILED with $status" ;;
  esac
}

# step SECONDS NAME COMMAND...: something that succeeds or fails.
step() {
  attempt "$@"
  row "$2" "$(outcome)"
}
# Whether there is no GPU for the step NAME of COMMAND, and if so its row.
without_gpu() {
  [ -z "$gpu" ] && judged "$1" "absent: $no_gpu" "$2"
}
gpu_step() { without_gpu "$2" "${*:3}" || step "$@"; }
# tool NAME: where it is, of CUDA's or of a folder of its own.
tool() {
  command -v "$1" || ls -d /usr/local/cuda*/bin/"$1" /opt/nvidia/nsight-{compute,systems}/*/"$1" /opt/nvidia/nsight-systems/*/bin/"$1" \
    /opt/nvidia/nsight-systems-cli/*/bin/"$1" 2>/dev/null | head -n 1
}
column() { sed -n "s/.*\"$2\":\([-0-9.e+]*\).*/\1/p" "$out/runs/$1/metrics.jsonl" 2>/dev/null; }
# Of the steps after the second.
median() { column "$1" "$2" | tail -n +3 | sort -g | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'; }

# ---- what this is and where
report
attempt 20 "find a GPU" "$here/bin/test_device" --gtest_color=no --gtest_filter=DeviceQuery.DescribesEveryGpu
if [ $status -ne 0 ]; then
  # It cannot be used (the driver is older than 580, say), or the program cannot run here.
  gpu=yes && row "find a GPU" "$(outcome)"
elif grep -q '^\[       OK \] DeviceQuery.DescribesEveryGpu' "$log"; then
  gpu=yes && row "find a GPU" ok
else
  no_gpu=$(awk '/: Skipped$/ {getline; sub(/^needs a GPU: /, ""); print; exit}' "$log")
  if [ -e /dev/nvidiactl ] && [ "${CUDA_VISIBLE_DEVICES-all}" ]; then
    row "find a GPU" "FAILED: ${no_gpu:=the test says nothing of it}"
  else
    row "find a GPU" "absent: ${no_gpu:=the test says nothing of it}"
  fi
fi
revision=$(cat "$here/share/revision" 2>/dev/null || echo unknown)
version=$(timeout 20 "$here/bin/spillway" --version | head -n 1)
facts=$(
  system=$(. /etc/os-release 2>/dev/null && echo "$PRETTY_NAME")
  memory=$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)
  asked=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit
  asks='import torch; print(torch.__version__, "with CUDA", torch.version.cuda, "and cuDNN", torch.backends.cudnn.version())'
  torch=$(timeout 40 python3 -c "$asks" 2>&1 | tail -n 1)
  echo "- archive: $version, revision $revision; $(date -u +%FT%TZ)${tiny:+; tiny sizes, $tiny s}"
  echo "- node: $(uname -sr), $system, $(nproc) cores, $memory"
  echo "- GPU: $(timeout 20 nvidia-smi --query-gpu=$asked --format=csv,noheader 2>/dev/null | paste -sd';' | grep . ||
    echo "nvidia-smi is not there or found none")"
  cuda=$(timeout 20 nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[^:]*Version: *\([0-9.]*\).*/\1/p')
  echo "- CUDA that the driver takes: ${cuda:-unknown}"
  for each in compute-sanitizer nsys ncu; do
    path=$(tool $each)
    echo "- $each: ${path:-none}${path:+, $(timeout 20 "$path" --version 2>&1 | grep -i version | head -n 1)}"
  done
  echo "- PyTorch: ${torch:-none}"
)
echo "Spillway of $revision: ${no_gpu:-there is a GPU}"

# Clocks, power and what holds them down, four times a second.
watched=${CUDA_VISIBLE_DEVICES-} watched=${watched%%,*} watched=${watched:-0}
ask=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu
for reasons in ,clocks_event_reasons.active ,clocks_throttle_reasons.active ""; do
  if timeout 20 nvidia-smi --id="$watched" --query-gpu=$ask$reasons --format=csv,noheader,nounits >"$out/tmp/sample" 2>/dev/null; then
    nvidia-smi --id="$watched" --query-gpu=$ask$reasons --format=csv,noheader,nounits -lms 250 >"$logs/clocks.csv" 2>/dev/null &
    sampling=$!
    break
  fi
done
step 30 doctor "$here/bin/spillway" doctor
detail "doctor" "$(cat "$log")"

source "$here/share/gpu_check/$part.sh"

# ---- the end
if [ -z "$sampling" ]; then said="absent: no nvidia-smi that answers"
elif said=$(tables clocks "$logs/clocks.csv" 0 -1); then said="ok, ${said/ |/,} ($(samples) samples)"
else said="FAILED: $said"
fi
judged "clocks and power" "$said" "nvidia-smi -lms 250"
kill $sampling 2>/dev/null
sampling="" ended=" "
report
rm -rf "$out"/{tmp,cache,runs}
tar -C "$out" -czf "$out/gpu_check.tar.gz" report.md logs || failed+=("the archive")
echo "gpu_check $part: $(counts), $SECONDS s; $out/report.md"
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
[ ${#missing[@]} -eq 0 ] || { printf 'not done: %s\n' "${missing[@]}"; exit 3; }
