// Adds to a list what a rank sends to and receives from other pipeline ranks: block outputs, their gradients, and, for weights that blocks
// on several ranks share, the gradients of each use and the new weights. Works beside the classes of moves.h and is called like them. For
// one thread.
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

  /// Appends the instructions that receive from other pipeline ranks what must arrive before the computation at this position of the list.
  void receive_due(i64 position);
  /// Returns the slot that holds what the block reads from another rank; an empty slot if it was computed on this rank. Adds to `after` the
  /// instruction that receives it.
  Slot input(const Compute& c, std::vector<u32>& after) const;
  /// Takes a slot for the result that another rank reads; returns an empty slot if no rank does. Adds to `after` what must be done before
  /// the slot is free.
  Slot output(const Compute& c, std::vector<u32>& after);
  /// Called when `id`, the computing instruction, was added: frees the slot that it read and sends the result in its slot.
  void computed(const Compute& c, u32 id);

 private:
  /// The message that the computing reads or produces, if that crosses ranks.
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

/// Returns the uses of the group by blocks of other pipeline ranks, and the rank of each.
std::vector<std::pair<u8, u16>> uses_elsewhere(const Layout& layout, const Group& group);
/// Returns the pipeline ranks with which this rank shares the group, each once: on its owner all other holders, elsewhere the owner only.
std::vector<u16> sharers(const Layout& layout, const Group& group);

}  // namespace spillway::parallel
