# Sourced by the other scripts: runs long commands with their output in a log and a sign of life on the terminal.

jobs=$(nproc)
heartbeat=
trap '[ -z "$heartbeat" ] || kill "$heartbeat" 2>/dev/null' EXIT

# step LOG WHAT COMMAND...: says what runs, every 20 s the log's last line, at the end how long it took. The command's status is returned;
# when it is not 0 the log's end is shown.
step() {
  local log=$1 what=$2 start=$SECONDS status=0
  shift 2
  mkdir -p "$(dirname "$log")"
  : >"$log"
  printf '%s\n' "== $what"
  while sleep 20 >/dev/null 2>&1; do printf '   %4d s  %s\n' $((SECONDS - start)) "$(tail -n 1 "$log" | cut -c1-110)"; done &
  heartbeat=$!
  "$@" >"$log" 2>&1 || status=$?
  kill "$heartbeat" 2>/dev/null
  wait "$heartbeat" 2>/dev/null || true
  heartbeat=
  printf '   %4d s  %s\n' $((SECONDS - start)) "$([ $status -eq 0 ] && echo "done" || echo "failed with $status, see $log")"
  [ $status -eq 0 ] || tail -n "${lines_on_failure:-60}" "$log"
  return $status
}

# build PRESET [TARGET...]; `configuring` holds what else CMake is to know.
configuring=()
build() {
  local preset=$1
  shift
  step "build/logs/configure-$preset.log" "configuring build/$preset" cmake --preset "$preset" "${configuring[@]}"
  step "build/logs/build-$preset.log" "building build/$preset" cmake --build "build/$preset" -j "$jobs" ${1:+--target "$@"}
}
