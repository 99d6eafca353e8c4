// Plans the copies to and from the device while a list is generated. There is one class each for weights, gradient accumulators and
// activations: it adds their Fetch, Release and Evict instructions around each computing instruction, plans their slots and knows where
// they lie at that moment. The Generator calls them in the order of computing. For one thread.
#pragma once
#include <map>

#include "parallel/program/computing_order.h"
#include "parallel/program/list_builder.h"
#include "parallel/program/slab_plan.h"

namespace spillway::parallel {

/// Moves the weights of groups. A group stays on the device between two uses if it would otherwise be fetched again at once. Weights that
/// come from nvme or from other ranks are fetched ahead of their use.
class WeightMoves {
 public:
  WeightMoves(ListBuilder& list, const ComputingOrder& order, SlabPlan& slab) : list_(list), slab_(slab) { plan_stays(order); }

  /// Fetches the groups that the coming computing needs and whose turn is at this position.
  void fetch_due(i64 position);
  /// Releases the groups for which the instruction at this position was the last reader.
  void release_due(i64 position);
  /// Returns the slot in which the group lies now; an empty slot if it is always resident. Adds to `after` what a reader must wait for.
  Slot slot(u16 group, std::vector<u32>& after) const;
  /// With deferred Steps: states that the group's new weights are complete after these instructions.
  void ready_after(u16 group, std::vector<u32> instructions) { ready_[group] = std::move(instructions); }

 private:
  void plan_stays(const ComputingOrder& order);
  u32 fetch(u16 group, TileRange tiles, std::vector<u32> after);
  u32 gather(u16 group, std::vector<u32> after);

  ListBuilder& list_;
  SlabPlan& slab_;
  std::vector<std::vector<u16>> fetch_at_, release_at_;  // groups to fetch and to release at each position
  std::map<u16, Slot> slots_;                            // slots in which groups' weights lie now
  std::map<u16, u32> fetched_, released_;                // the group's last Fetch (or Gather) and Release
  std::map<u16, std::vector<u32>> ready_;
};

/// Moves gradient accumulators, of which each use of a group has one.
class GradientMoves {
 public:
  GradientMoves(ListBuilder& list, const ComputingOrder& order, SlabPlan& slab) : list_(list), order_(order), slab_(slab) {}

  /// Fetches accumulators ahead of the backward of a later micro-batch that adds to them, at the earliest after they were evicted.
  void fetch_due(i64 position);
  /// Returns the slot into which weight gradients are written; an empty slot if the accumulator lies on the device. Adds to `after` what
  /// the writer must wait for.
  Slot slot(const GroupUse& use, std::vector<u32>& after);
  /// Called after a block's weight gradients of a run's last micro-batch. An accumulator that moves is evicted to its tier, to be fetched
  /// for the next micro-batch. After the `last` micro-batch, or after each one if sums_each(), it is summed over the ranks instead.
  void computed(const GroupUse& use, bool last, u32 backward);
  /// Called if each micro-batch's gradients are summed over the ranks: adds the sum to that of the earlier micro-batches, before the next
  /// weight gradients, and evicts it until then unless it is the `last`.
  void summed(const GroupUse& use, bool first, bool last);
  /// Sends this rank's sums of a weight that another pipeline rank owns to that rank.
  void give(u16 group);
  /// Called after the last gradients of all uses of the group and their sums over the ranks. Adds up tied uses, from this or other pipeline
  /// ranks, which waited in their slots, and reduces the sum to squares. Then evicts a gradient that moves to its tier, unless it stays for
  /// its Steps; on a CPU the Reduce itself copies it to host memory. Returns the instruction after which the gradient is in its final
  /// place.
  u32 finished(u16 group, u32 backward);
  /// Returns the slot in which the finished gradient stays for its Steps; an empty slot if it is stored in its tier.
  Slot staying(u16 group) const;
  /// Returns the instructions that moved a gradient off the device or sent it to its owner.
  std::vector<u32> evictions() const;

 private:
  using Key = std::pair<u16, u8>;  // (group, use)
  void fetch(Key key);
  void exchange(const GroupUse& use, u32 after);
  void accumulate(Key key);
  u32 reduce(u16 group, u32 backward);
  u32 evict(Key key, u32 after, TileRange tiles);
  u32 left(Key key, u32 instruction);
  void free_left(i64 position);
  void receive_tied_uses(const Group& group);
  void add_tied_uses(const Group& group);

  ListBuilder& list_;
  const ComputingOrder& order_;
  SlabPlan& slab_;
  std::map<Key, Slot> slots_;   // slots in which accumulators lie now
  std::map<Key, Slot> before_;  // the sum over the earlier micro-batches, if each is summed over the ranks
  std::map<Key, u32> fetched_, evicted_;
  std::map<Key, u32> summed_;  // the instruction after which it is summed over micro-batches and ranks
  struct Leaving {
    Slot slot;
    u32 instruction = 0;
    i64 position = 0;
  };
  std::vector<Leaving> leaving_;  // copied out while a GPU computes; the slots are not free yet
  i64 position_ = 0;              // the current position in the computing order
};

/// Moves what blocks keep between forward and backward outside the device.
class ActivationMoves {
 public:
  ActivationMoves(ListBuilder& list, const ComputingOrder& order, SlabPlan& slab, bool training)
      : list_(list), order_(order), slab_(slab), training_(training) {}

  void fetch_due(i64 position);
  /// Returns the policy that applies to the block. The last block's activations stay on the device if its backward follows at once, that
  /// is, unless other micro-batches come between. Blocks without a backward keep nothing.
  ActivationPolicy policy(u16 block) const;
  /// Returns true if the block is the last one and keeps its logits, as its placement says; but logits that would be offloaded and fetched
  /// again are recomputed instead, which is faster.
  bool keeps_logits(u16 block) const;
  /// Returns the slot into which a Forward puts, or in which a backward finds, what the block keeps; an empty slot if that stays on the
  /// device. What a BackwardWeight needs always stays there.
  Slot slot(const Compute& c, std::vector<u32>& after);
  /// After a Forward, evicts what goes on to nvme; after a backward (its input part), frees the slot.
  void computed(const Compute& c, u32 done);

 private:
  using Key = std::pair<u16, u16>;  // (block, micro-batch)
  bool spills(u16 block) const { return policy(block).tier != Tier::device && list_.scheduling.spilled_bytes.at(block) > 0; }

  ListBuilder& list_;
  const ComputingOrder& order_;
  SlabPlan& slab_;
  const bool training_;
  std::map<Key, Slot> slots_;
  std::map<Key, u32> evicted_, fetched_;
};

}  // namespace spillway::parallel
