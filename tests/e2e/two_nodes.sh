#!/bin/bash
# two_nodes.sh PROGRAM FOLDER RANKS ARGUMENT...: so many ranks of `PROGRAM ARGUMENT...` in each of two network namespaces, joined by a pair
# of virtual interfaces: two nodes that share nothing but files. What rank R says is in FOLDER/rankR.txt; the exit status is the largest of
# all. 77, and a line saying why: this machine has no two namespaces for us.
set -u
program=$1 folder=$2 ranks=$3
shift 3
names=("spillway-$$-0" "spillway-$$-1")

skip() {
  echo "two_nodes.sh: $1"
  exit 77
}
[ "$(id -u)" = 0 ] || skip "not root"
command -v ip > /dev/null || skip "no program ip (package iproute2)"
clean_up() {
  for name in "${names[@]}"; do ip netns del "$name" 2> /dev/null; done
}
trap clean_up EXIT
for name in "${names[@]}"; do ip netns add "$name" || skip "no network namespaces here"; done
ip link add "sp$$a" netns "${names[0]}" type veth peer name "sp$$b" netns "${names[1]}" || skip "no virtual interfaces here"
ends=("sp$$a" "sp$$b")
for node in 0 1; do
  ip -n "${names[$node]}" address add "10.213.7.$((node + 1))/24" dev "${ends[$node]}"
  ip -n "${names[$node]}" link set "${ends[$node]}" up
  ip -n "${names[$node]}" link set lo up
done

export SPILLWAY_TOKEN=0123456789abcdef0123456789abcdef
for ((rank = 0; rank < 2 * ranks; ++rank)); do
  RANK=$rank WORLD_SIZE=$((2 * ranks)) LOCAL_RANK=$((rank % ranks)) LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=10.213.7.1 MASTER_PORT=29511 \
    ip netns exec "${names[rank / ranks]}" "$program" "$@" > "$folder/rank$rank.txt" 2>&1 &
  started[$rank]=$!
done
worst=0
for process in "${started[@]}"; do
  wait "$process"
  status=$?
  worst=$((status > worst ? status : worst))
done
exit $worst
