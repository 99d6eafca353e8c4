// Collects instructions in a list while a Program (a rank's lists of instructions) is generated, and holds the inputs from which they are
// generated. Used by one thread.
#pragma once
#include "parallel/layout/residency.h"
#include "parallel/program/computing_order.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

struct ListBuilder {
  const Layout& layout;
  const Placement& placement;
  const Scheduling& scheduling;
  const Residency& residency;  // where each group's data is stored; computed from the three members above
  List list;

  /// Appends the instruction and returns its index. Fills in the bytes that the instruction moves. Removes from `after`
  /// instructions that are done earlier in any case, because instructions of one lane run in order.
  u32 add(Instruction instruction);

  bool frozen(u16 group) const { return layout.groups[group].frozen; }
  bool alone() const { return scheduling.sharding.ranks == 1; }
  /// Returns true if this computation reads the weights of its block. A backward that recomputes the forward reads the weights that the
  /// forward reads.
  bool reads_weights(const Compute& c) const {
    if (c.op == Op::BackwardWeight) return layout.weight_gradients_read_weights[c.block];
    return c.op == Op::Forward || layout.backward_reads_weights[c.block] || placement.activations[c.block].recompute;
  }
  i64 weight_bytes(u16 group) const { return layout.groups[group].elems * size_of(scheduling.format.weight); }
  i64 weight_tile_bytes() const { return scheduling.format.weight_tile_bytes(); }
  i64 gradient_tile_bytes() const { return scheduling.format.gradient_tile_bytes(); }
  i64 gradient_bytes(u16 group) const { return layout.groups[group].elems * size_of(scheduling.format.gradient); }

 private:
  void count_bytes(Instruction& instruction) const;
};

/// Returns the part of `slot` (planned memory for a whole group) in which these tiles lie.
inline Slot part_of(const Slot& slot, TileRange tiles, i64 tile_bytes) {
  if (slot.bytes == 0) return {};
  return {slot.offset + tiles.begin * tile_bytes, tiles.count() * tile_bytes, slot.slab};
}

}  // namespace spillway::parallel
