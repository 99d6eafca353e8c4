// Where generated instructions come together: a list, and what each of them is generated from. Used while a Program is made, by one thread.
#pragma once
#include "parallel/program/computing_order.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

struct ListBuilder {
  const Layout& layout;
  const Placement& placement;
  const Scheduling& scheduling;
  List list;

  /// Counts its bytes, drops what its lane's order says already, and returns its number.
  u32 add(Instruction instruction);

  bool weights_move(u16 group) const { return parallel::weights_move(placement, scheduling, group); }
  bool weights_split(u16 group) const { return parallel::weights_split(placement, scheduling, group); }
  bool frozen(u16 group) const { return layout.groups[group].frozen; }
  bool gradients_move(u16 group) const { return parallel::gradients_move(placement, scheduling, layout.groups[group]); }
  bool gradients_split(u16 group) const { return parallel::gradients_split(placement, scheduling, group); }
  /// The tiles of a reduced gradient that this rank goes on with.
  TileRange stepped(u16 group) const { return scheduling.sharding.stepped(layout.groups[group]); }
  bool alone() const { return scheduling.sharding.ranks == 1; }
  /// A backward that runs its Forward again reads what that reads.
  bool reads_weights(const Compute& c) const {
    if (c.op == Op::BackwardWeight) return layout.weight_gradients_read_weights[c.block];
    return c.op == Op::Forward || layout.backward_reads_weights[c.block] || placement.activations[c.block].recompute;
  }
  i64 weight_bytes(u16 group) const { return layout.groups[group].elems * size_of(scheduling.format.weight); }
  i64 weight_tile_bytes() const { return scheduling.format.weight_tile_bytes(); }
  i64 gradient_tile_bytes() const { return scheduling.format.gradient_tile_bytes(); }
  i64 gradient_bytes(u16 group) const { return layout.groups[group].elems * size_of(scheduling.format.gradient); }
};

/// Of a slot that holds a whole group, where these tiles lie.
inline Slot part_of(const Slot& slot, TileRange tiles, i64 tile_bytes) {
  if (slot.bytes == 0) return {};
  return {slot.offset + tiles.begin * tile_bytes, tiles.count() * tile_bytes, slot.slab};
}

}  // namespace spillway::parallel
