#!/bin/bash
# two_nodes.sh PROGRAM FOLDER ARGUMENT...: rank 0 and rank 1 of `PROGRAM ARGUMENT...` in two network namespaces, joined by a pair of virtual
# interfaces: two nodes that share nothing but files. Their output is in FOLDER/node0.txt and FOLDER/node1.txt; the exit status is the larger
# of the two. 77, and a line saying why: this machine has no two namespaces for us.
set -u
program=$1 folder=$2
shift 2
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

for node in 0 1; do
  RANK=$node WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.213.7.1 MASTER_PORT=29511 \
    ip netns exec "${names[$node]}" "$program" "$@" > "$folder/node$node.txt" 2>&1 &
  ranks[$node]=$!
done
wait "${ranks[0]}"
first=$?
wait "${ranks[1]}"
second=$?
exit $((first > second ? first : second))
