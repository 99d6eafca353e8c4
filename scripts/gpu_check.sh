#!/usr/bin/env bash
# Checks Spillway on a node with a GPU, without root and without network. Lies in the archive of `scripts/bundle.sh --check`; unpack that
# anywhere and run
#   ./gpu_check.sh first [FOLDER]    420 s: for a first contact with a borrowed GPU. Stops if the most basic tests fail
#   ./gpu_check.sh rest [FOLDER]     540 s: all other tests, NVIDIA's tools over all kernels, PyTorch beside, kernels one by one
# FOLDER (default: gpu_check.out) gets two files, report.md and gpu_check.tar.gz (the report and all logs). Both are written anew after each
# row, so that they are there whenever the check is ended. Everything else is written to work/ beside this script.
#
# A step is ok, slow (right, but below what is promised of its speed), cut short, absent (what it needs is not on this node), FAILED, or
# looked (it says more about a failure above). Exit status: 0 all are ok, slow or looked; 1 one failed; 3 none failed, but one is absent or
# cut short; 2 wrong usage.
#
# Each step has seconds of its own in a time table, so that a step that hangs takes none from those behind it. What earlier steps left over
# is added, up to as much again. GPU_CHECK_SECONDS=N: N seconds in all, shared out alike. GPU_CHECK_TINY=1: sizes that an emulated GPU does.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
part=${1-} out=${2:-gpu_check.out}
case $part in
  first) nominal=420 ;;
  rest) nominal=540 ;;
  *) nominal="" ;;
esac
if [ -z "$nominal" ] || [[ $out == -* ]] || [ $# -gt 2 ]; then
  echo "usage: gpu_check.sh first|rest [FOLDER]" >&2
  exit 2
fi
total=${GPU_CHECK_SECONDS:-$nominal} tiny=${GPU_CHECK_TINY-}
if [ ! -x "$here/bin/spillway" ] || [ ! -e "$here/share/gpu_check/tables.py" ]; then
  echo "gpu_check.sh: bin/spillway and share/gpu_check are not beside it: run it in the unpacked archive of scripts/bundle.sh --check" >&2
  exit 2
fi
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
if [ -e "$out/report.md" ] && [ "$(head -n 1 "$out/report.md")" != "# Spillway on a GPU" ]; then
  echo "gpu_check.sh: expected no report.md in $out but an earlier check's, got another one: name another folder" >&2
  exit 2
fi
work=$here/work/$part
logs=$work/logs runs=$work/runs
rm -rf "$work"
mkdir -p "$logs" "$runs" "$work"/{tmp,cache} && touch "$logs/clocks.csv" || exit 2
export LC_ALL=C TMPDIR=$work/tmp XDG_CACHE_HOME=$work/cache CUDA_CACHE_PATH=$work/cache/cuda TORCHINDUCTOR_CACHE_DIR=$work/cache/inductor
export TRITON_CACHE_DIR=$work/cache/triton PYTHONDONTWRITEBYTECODE=1
[ -z "$tiny" ] || export SPILLWAY_BENCH_TINY=1
# NVIDIA's libraries may be there with PyTorch alone, or where nobody told the loader.
for folder in $(timeout 20 python3 -c 'import sys; print("\n".join(p + "/nvidia/*/lib" for p in sys.path if p))' 2>/dev/null) \
  "${CUDA_HOME:-/usr/local/cuda}"/{lib64,extras/CUPTI/lib64} /usr/local/cuda-*/{lib64,extras/CUPTI/lib64} \
  ${CONDA_PREFIX:+"$CONDA_PREFIX/lib"}; do
  for libraries in $folder; do [ ! -d "$libraries" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries; done
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}

# ---- steps and the report
rows=() details=() failed=() missing=() facts="" ended="" gpu="" no_gpu="" running="" sampling=""
status=0 took=0 log="" command="" first_sample=0 last_sample=0 planned=0 has=0
trap 'kill $running $sampling 2>/dev/null; report; exit 130' INT TERM
trap 'kill $sampling 2>/dev/null' EXIT
# So many seconds of the whole, where that is shorter or longer than planned.
scaled() { echo $((($1 * total + nominal - 1) / nominal)); }
# turn SECONDS: the next of the time table; $has is then what it may take.
turn() {
  planned=$((planned + $1))
  local most left=$((total - 4 - SECONDS))
  most=$(scaled $((2 * $1)))
  has=$(($(scaled $planned) - SECONDS))
  [ $has -le "$most" ] || has=$most
  [ $has -ge 1 ] || has=1
  [ $has -le $left ] || has=$left
}
samples() { wc -l <"$logs/clocks.csv"; }

# attempt NAME COMMAND...: runs it for $has seconds, with its output in $log; its status is in $status, 124 where it was ended.
attempt() {
  local begin=$SECONDS
  log=$logs/${1//[^A-Za-z0-9.-]/_}.log command=${*:2} first_sample=$(samples) status=124
  echo "$1 ($has s): $command" >>"$logs/commands.txt"
  if [ "$has" -ge 1 ]; then
    timeout -k 5 "$has" "${@:2}" >"$log" 2>&1 </dev/null &
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
  shown=${shown//work\/$part\//WORK/}
  if [ "$last_sample" -gt "$first_sample" ]; then
    clocks=$(tables clocks "$logs/clocks.csv" "$first_sample" "$last_sample") || clocks="– | –"
  fi
  rows+=("| $1 | ${2//|//} | $took | $clocks | \`${shown:0:400}\` |")
  printf '%4d s  %-34s %s\n' $SECONDS "$1" "${2:0:120}"
  case $2 in
    ok*|slow*|looked*) ;;
    "cut short"*|absent*) missing+=("$1") ;;
    *)
      failed+=("$1")
      said=$(tail -n 40 "$log")
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

# Writes report.md and the archive. A check that is under way has not come to its end, whatever has become of it.
report() {
  {
    printf '# Spillway on a GPU\n\n'
    echo "gpu_check.sh $part: $(counts), $SECONDS s of $total${ended:- so far: FAILED, it has not come to its end}"
    printf '\n%s\n\n| step | outcome | s | SM clock, median | power, mean | command |\n|---|---|---|---|---|---|\n' "$facts"
    printf '%s\n' "${rows[@]}" '' "${details[@]}"
  } >"$work/report.md"
  cp "$work/report.md" "$out/report.md"
  tar -C "$work" -czf "$work/tmp/packed" report.md logs && mv "$work/tmp/packed" "$out/gpu_check.tar.gz"
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
  turn "$1"
  attempt "${@:2}"
  row "$2" "$(outcome)"
}
# Whether there is no GPU for the step NAME of COMMAND, and if so its row.
without_gpu() {
  [ -z "$gpu" ] && judged "$1" "absent: $no_gpu" "$2"
}
gpu_step() { without_gpu "$2" "${*:3}" || step "$@"; }
# tool NAME: where it is, of CUDA's or of a folder of its own.
tool() {
  command -v "$1" || ls -d /usr/local/cuda*/bin/"$1" /opt/nvidia/nsight-compute/*/"$1" 2>/dev/null | head -n 1
}

# ---- what this is and where
report
turn 10
attempt "find a GPU" "$here/bin/test_device" --gtest_color=no --gtest_filter=DeviceQuery.DescribesEveryGpu
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
turn 10
facts=$(
  asked() {
    timeout 20 nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | paste -sd';' | grep . || echo "nvidia-smi says nothing of it"
  }
  system=$(. /etc/os-release 2>/dev/null && echo "$PRETTY_NAME")
  memory=$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)
  processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
  asks='import torch; print(torch.__version__, "with CUDA", torch.version.cuda, "and cuDNN", torch.backends.cudnn.version())'
  torch=$(timeout 15 python3 -c "$asks" 2>&1 | tail -n 1)
  version=$(timeout 20 "$here/bin/spillway" --version | head -n 1)
  disk=$(df -Ph "$work" | awk 'NR == 2 {print $4 " free on " $1}')
  link=pcie.link.gen.max,pcie.link.width.max,pcie.link.gen.current,pcie.link.width.current
  echo "- archive: $version, revision $(cat "$here/share/revision" 2>/dev/null || echo unknown); $(date -u +%FT%TZ)${tiny:+; tiny sizes}"
  echo "- node: $(uname -sr), $system, ${processor:-unknown processor}, $(nproc) cores, $memory; $disk"
  echo "- GPU: $(asked name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit)"
  echo "- PCIe, generation and lanes at their most and now: $(asked $link)"
  cuda=$(timeout 20 nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[^:]*Version: *\([0-9.]*\).*/\1/p')
  echo "- CUDA that the driver takes: ${cuda:-unknown}"
  for each in nvcc compute-sanitizer ncu; do
    path=$(tool $each)
    echo "- $each: ${path:-none}${path:+, $(timeout 20 "$path" --version 2>&1 | grep -iE 'version|release' | head -n 1)}"
  done
  echo "- PyTorch: ${torch:-none}"
)
echo "${no_gpu:-there is a GPU}"

# Clocks, power and what holds them down, four times a second.
watched=${CUDA_VISIBLE_DEVICES-} watched=${watched%%,*} watched=${watched:-0}
ask=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu
for reasons in ,clocks_event_reasons.active ,clocks_throttle_reasons.active ""; do
  if timeout 20 nvidia-smi --id="$watched" --query-gpu=$ask$reasons --format=csv,noheader,nounits >"$work/tmp/sample" 2>/dev/null; then
    nvidia-smi --id="$watched" --query-gpu=$ask$reasons --format=csv,noheader,nounits -lms 250 >"$logs/clocks.csv" 2>/dev/null &
    sampling=$!
    break
  fi
done
step 5 doctor "$here/bin/spillway" doctor
detail "doctor" "$(cat "$log")"

source "$here/share/gpu_check/tests.sh"
source "$here/share/gpu_check/trainings.sh"
source "$here/share/gpu_check/$part.sh"

# ---- the end
if [ -z "$sampling" ]; then said="absent: no nvidia-smi that answers"
elif said=$(tables clocks "$logs/clocks.csv" 0 -1); then said="ok, ${said/ |/,} ($(samples) samples)"
else said="FAILED: $said"
fi
kill $sampling 2>/dev/null
sampling="" ended=" "
judged "clocks and power" "$said" "nvidia-smi -lms 250"
rm -rf "$work"/{tmp,cache,runs}
echo "gpu_check $part: $(counts), $SECONDS s, by the time table $planned of $nominal; $out/report.md"
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
[ ${#missing[@]} -eq 0 ] || { printf 'not done: %s\n' "${missing[@]}"; exit 3; }
