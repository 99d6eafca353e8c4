// What comes to the device and leaves it while a list is made: a class each for weights, gradient accumulators and activations adds their
// Fetch, Release and Evict around each computing instruction, plans their slots, and knows where they lie at that moment. The Generator
// calls them in the order of computing. One thread.
#pragma once
#include <map>

#include "parallel/program/computing_order.h"
#include "parallel/program/list_builder.h"
#include "parallel/program/slab_plan.h"

namespace spillway::parallel {

/// Groups' weights. A group stays between two uses when it would have to be fetched again at once. From nvme, and from other ranks, it
/// comes ahead of its use.
class WeightMoves {
 public:
  WeightMoves(ListBuilder& list, const ComputingOrder& order, SlabPlan& slab) : list_(list), slab_(slab) { plan_stays(order); }

  /// What the coming computing instructions need and is fetched here.
  void fetch_due(i64 position);
  /// What the instruction at this position was the last to need.
  void release_due(i64 position);
  /// Where the group lies now, none when it always does; adds to `after` what a reader waits for.
  Slot slot(u16 group, std::vector<u32>& after) const;
  /// Overlap forward: the group's new weights are there after these instructions.
  void ready_after(u16 group, std::vector<u32> instructions) { ready_[group] = std::move(instructions); }

 private:
  void plan_stays(const ComputingOrder& order);
  u32 fetch(u16 group, TileRange tiles, std::vector<u32> after);
  u32 gather(u16 group, std::vector<u32> after);

  ListBuilder& list_;
  SlabPlan& slab_;
  std::vector<std::vector<u16>> fetch_at_, release_at_;  // groups, by position
  std::map<u16, Slot> slots_;                            // where the group's weights lie now
  std::map<u16, u32> fetched_, released_;                // the group's last Fetch (or Gather) and Release
  std::map<u16, std::vector<u32>> ready_;
};

/// Gradient accumulators, one a use of a group.
class GradientMoves {
 public:
  GradientMoves(ListBuilder& list, const ComputingOrder& order, SlabPlan& slab) : list_(list), order_(order), slab_(slab) {}

  /// The accumulators of a later micro-batch come back ahead of the backward that adds to them, at the earliest after they left.
  void fetch_due(i64 position);
  /// Where weight gradients are written, none when it lies on the device; adds to `after` what it waits for.
  Slot slot(const GroupUse& use, std::vector<u32>& after);
  /// After a block's weight gradients of a run's last micro-batch: what moves goes to its tier, to come back for the next one; after the
  /// `last` one, or after each, it is summed over the ranks.
  void computed(const GroupUse& use, bool last, u32 backward);
  /// Where each micro-batch's is: the sum joins those of the micro-batches before the next one's weight gradients; it rests until then,
  /// unless it is the `last`.
  void summed(const GroupUse& use, bool first, bool last);
  /// Of a weight that another pipeline rank owns: the sums of this rank's uses go there.
  void give(u16 group);
  /// After the last gradients of all its uses and their sums over the ranks: tied uses, here or from other pipeline ranks, which waited in
  /// their slots, are added and the sum reduced, then what moves goes to its tier, unless it stays for its Steps. To memory the Reduce
  /// itself brings it. Returns the instruction after which the gradient rests.
  u32 finished(u16 group, u32 backward);
  /// Where the finished gradient stays for its Steps, none when it rests in its tier.
  Slot staying(u16 group) const;
  /// All that left the device, and what went to owners.
  std::vector<u32> evictions() const;

 private:
  using Key = std::pair<u16, u8>;  // group, use
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
  std::map<Key, Slot> slots_;   // where the accumulator lies now
  std::map<Key, Slot> before_;  // where the sum over the micro-batches before lies, when each is summed over the ranks
  std::map<Key, u32> fetched_, evicted_;
  std::map<Key, u32> summed_;  // the instruction after which it is, over the micro-batches and the ranks
  struct Leaving {
    Slot slot;
    u32 instruction = 0;
    i64 position = 0;
  };
  std::vector<Leaving> leaving_;  // beside a GPU's computing, not given up yet
  i64 position_ = 0;              // in the computing order
};

/// What blocks keep between forward and backward outside the device.
class ActivationMoves {
 public:
  ActivationMoves(ListBuilder& list, const ComputingOrder& order, SlabPlan& slab, bool training)
      : list_(list), order_(order), slab_(slab), training_(training) {}

  void fetch_due(i64 position);
  /// What the last block keeps is wanted at once, unless other micro-batches come between: it stays where it is. Blocks without a backward
  /// keep nothing.
  ActivationPolicy policy(u16 block) const;
  /// Of the last block, as its placement has it; but logits that would go to another tier and back are made again sooner.
  bool keeps_logits(u16 block) const;
  /// Where a Forward puts, or a backward finds, what the block keeps; none when that stays on the device, as what a BackwardWeight needs
  /// does.
  Slot slot(const Compute& c, std::vector<u32>& after);
  /// After a Forward what goes on to nvme is evicted; after a backward (its first part) its slot is free.
  void computed(const Compute& c, u32 done);

 private:
  using Key = std::pair<u16, u16>;  // block, micro-batch
  bool spills(u16 block) const { return policy(block).tier != Tier::device && list_.scheduling.spilled_bytes.at(block) > 0; }

  ListBuilder& list_;
  const ComputingOrder& order_;
  SlabPlan& slab_;
  const bool training_;
  std::map<Key, Slot> slots_;
  std::map<Key, u32> evicted_, fetched_;
};

}  // namespace spillway::parallel
