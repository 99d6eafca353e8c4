// What a list sends to other pipeline ranks and receives from them: outputs of blocks, their gradients, and of weights that blocks on
// several ranks share the gradients of each use and the new weights. Beside moves.h, and called like its classes. One thread.
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

  /// What comes before this position is computed.
  void receive_due(i64 position);
  /// Where what the block reads has come to, none when it was computed here; adds to `after` what it waits for.
  Slot input(const Compute& c, std::vector<u32>& after) const;
  /// Where it puts what other ranks read, none when nobody does.
  Slot output(const Compute& c, std::vector<u32>& after);
  /// `id`: the computing instruction. What it read is free, what it put into its slot is sent.
  void computed(const Compute& c, u32 id);

 private:
  /// What the computing reads or makes, if it crosses ranks.
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

/// Uses of the group on other pipeline ranks, and on which.
std::vector<std::pair<u8, u16>> uses_elsewhere(const Layout& layout, const Group& group);
/// The other pipeline ranks that hold it, each once: on its owner all of them, on others the owner alone.
std::vector<u16> sharers(const Layout& layout, const Group& group);

}  // namespace spillway::parallel
