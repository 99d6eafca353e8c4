// Adds to a list what a rank exchanges with other pipeline ranks: block outputs, the gradients of these outputs, and, for weights that
// blocks on several ranks share, each block's gradients and the new weights. The Generator calls this class like the classes of moves.h.
// Used by one thread.
#pragma once
#include <map>
#include <optional>

#include "parallel/program/computing_order.h"
#include "parallel/program/list_builder.h"
#include "parallel/program/slab_plan.h"

namespace spillway::parallel {

class MessageMoves {
 public:
  MessageMoves(ListBuilder& list, const ComputingOrder& order, SlabPlan& slab) : list_(list), order_(order), slab_(slab) {}

  /// Appends the instructions that receive, from other pipeline ranks, what must arrive before this position of the computing order.
  void receive_due(i64 position);
  /// Returns the slot (planned memory) with the data from another rank that this computation reads, or an empty slot if the data was
  /// computed on this rank. Adds to `after` the instruction that receives the data.
  Slot input(const Compute& c, std::vector<u32>& after) const;
  /// Reserves a slot (planned memory) for the result if another rank reads the result; otherwise returns an empty slot. Adds to `after`
  /// the instructions that must be done before the slot is free.
  Slot output(const Compute& c, std::vector<u32>& after);
  /// Frees the slot that a computation has read, and adds the instruction that sends the
  /// computation's result. Called when `id`, the instruction that computes, has been added.
  void computed(const Compute& c, u32 id);

 private:
  /// read_by() and made_by() return the message that the computation reads or makes, if the message crosses ranks.
  std::optional<Message> read_by(const Compute& c) const;
  std::optional<Message> made_by(const Compute& c) const;
  i64 bytes(const Message& m) const { return list_.scheduling.output_bytes.at(m.block); }
  Instruction instruction(const Message& m, bool receives) const;

  ListBuilder& list_;
  const ComputingOrder& order_;
  SlabPlan& slab_;
  std::map<Message, Slot> slots_;
  std::map<Message, u32> received_;
};

/// Returns the blocks of other pipeline ranks that use the group's weights: each with its number among the blocks that use the group, and
/// its pipeline rank.
std::vector<std::pair<u8, u16>> uses_elsewhere(const Layout& layout, const Group& group);
/// Returns the pipeline ranks with which this rank exchanges the group's data, each once. On the owner of the group these are all other
/// ranks that hold it; on every other rank it is the owner only.
std::vector<u16> sharers(const Layout& layout, const Group& group);

}  // namespace spillway::parallel
