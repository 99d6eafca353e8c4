// Where generated instructions come together: a list, and what each of them is generated from. Used while a Program is made, by one thread.
#pragma once
#include "parallel/computing_order.h"
#include "parallel/program.h"

namespace spillway::parallel {

struct ListBuilder {
  const Layout& layout;
  const Placement& placement;
  const Scheduling& scheduling;
  List list;

  /// Counts its bytes, drops what its lane's order says already, and returns its number.
  u32 add(Instruction instruction);

  bool weights_move(u16 group) const { return placement.parameters[group] != Tier::device; }
  bool frozen(u16 group) const { return layout.groups[group].frozen; }
  bool gradients_move(u16 group) const { return !frozen(group) && placement.gradients[group] != Tier::device; }
  /// A Backward that runs its Forward again reads what that reads.
  bool reads_weights(const Compute& c) const {
    return !c.backward || layout.backward_reads_weights[c.block] || placement.activations[c.block].recompute;
  }
  i64 weight_bytes(u16 group) const { return layout.groups[group].elems * size_of(scheduling.format.weight); }
  i64 gradient_bytes(u16 group) const { return layout.groups[group].elems * size_of(scheduling.format.gradient); }
};

}  // namespace spillway::parallel
