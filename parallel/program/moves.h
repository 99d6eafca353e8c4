// Plans the copies to and from the device while a list is generated. There is one class each for weights, gradient accumulators and
// activations. Each class adds Fetch, Release and Evict instructions for its data around the instructions that compute, plans the memory
// (slots) of its data, and knows at any moment where its data lies. The Generator calls the classes in computing order. Used by one
// thread.
#pragma once
#include <map>

#include "parallel/program/computing_order.h"
#include "parallel/program/list_builder.h"
#include "parallel/program/slab_plan.h"

namespace spillway::parallel {

/// Moves the weights of groups. A group stays on the device between two uses if it would have to be fetched again at once. Weights that
/// come from nvme or from other ranks are fetched ahead of their use.
class WeightMoves {
 public:
  WeightMoves(ListBuilder& list, const ComputingOrder& order, SlabPlan& slab) : list_(list), slab_(slab) { plan_stays(order); }

  /// Adds the Fetch (or Gather) instruction of each group that has to be fetched at this position.
  void fetch_due(i64 position);
  /// Adds a Release instruction for each group that is not read again after this position.
  void release_due(i64 position);
  /// Returns the slot (planned device memory) in which the group's weights lie, or an empty slot if they are always on the device. Adds
  /// to `after` the instructions that a reader of the weights must wait for.
  Slot slot(u16 group, std::vector<u32>& after) const;
  /// Records that the group's new weights are complete after these instructions. Called for deferred optimizer updates.
  void ready_after(u16 group, std::vector<u32> instructions) { ready_[group] = std::move(instructions); }

 private:
  void plan_stays(const ComputingOrder& order);
  u32 fetch(u16 group, TileRange tiles, std::vector<u32> after);
  u32 gather(u16 group, std::vector<u32> after);

  ListBuilder& list_;
  SlabPlan& slab_;
  std::vector<std::vector<u16>> fetch_at_, release_at_;  // groups to fetch and to release at each position
  std::map<u16, Slot> slots_;                            // for each group on the device: the slot in which its weights lie
  std::map<u16, u32> fetched_, released_;                // for each group: its last Fetch or Gather, and its last Release
  std::map<u16, std::vector<u32>> ready_;
};

/// Holds slots (planned memory on the device) whose data is on its way to another tier, until they may be used again. If a GPU copies it
/// while it computes, the copy may take as long as the next block's computing, so the slot is free only for the block after that one.
class LeavingSlots {
 public:
  LeavingSlots(const ListBuilder& list, SlabPlan& slab) : list_(list), slab_(slab) {}

  /// Frees the slot after this instruction, which copies its data; `beside` says that it does so while blocks compute.
  void add(const Slot& slot, u32 instruction, bool beside);
  /// Must be called at each position of the computing order, before slots are taken there.
  void reach(i64 position);

 private:
  struct Leaving {
    Slot slot;
    u32 instruction = 0;
    i64 position = 0;
  };
  const ListBuilder& list_;
  SlabPlan& slab_;
  std::vector<Leaving> leaving_;
  i64 position_ = 0;
};

/// Moves gradient accumulators. Each block that uses a parameter group has an accumulator for the group's gradients.
class GradientMoves {
 public:
  GradientMoves(ListBuilder& list, const ComputingOrder& order, SlabPlan& slab)
      : list_(list), order_(order), slab_(slab), leaving_(list, slab) {}

  /// Fetches the accumulators to which the backward of a later micro-batch adds, ahead of that backward, but not before they were evicted.
  void fetch_due(i64 position);
  /// Returns the slot (planned device memory) into which the gradients of a block for the group are written, or an empty slot if the
  /// accumulator is stored on the device. Adds to `after` the instructions that must be done before.
  Slot slot(const GroupUse& use, std::vector<u32>& after);
  /// Called after the weight gradients of a run's last micro-batch have been computed. If the accumulator is not stored on the device, it
  /// is evicted to its tier and fetched again for the next micro-batch. After the `last` micro-batch, or after every micro-batch if
  /// sums_each(), it is summed over the ranks instead.
  void computed(const GroupUse& use, bool last, u32 backward);
  /// Called after a micro-batch's gradients were summed over the ranks, if sums_each(). Adds this sum to that of the earlier micro-batches,
  /// before the block's next weight gradients are written. Then evicts the total, unless this was the `last` micro-batch.
  void summed(const GroupUse& use, bool first, bool last);
  /// Sends the gradient sums of a tied weight, one for each block of this rank that uses it, to the pipeline rank that owns the weight.
  void give(u16 group);
  /// Adds the instructions that finish the gradient of a group. Called when the instructions that compute this gradient in all blocks, and
  /// sum it over the ranks, have been added. The new instructions add up the gradients of a tied weight, some of which come from other
  /// pipeline ranks; compute the sum of the squares (Reduce); and copy the gradient to its tier (Evict), unless it stays on the device for
  /// its optimizer update. On a CPU, Reduce makes this copy. Returns the instruction after which the gradient is in its final place.
  u32 finished(u16 group, u32 backward);
  /// Returns the slot (planned device memory) in which the finished gradient stays until its optimizer update, or an empty slot if the
  /// gradient is stored in its tier.
  Slot staying(u16 group) const;
  /// Returns the instructions that evicted gradients, or sent them to the ranks that own them.
  std::vector<u32> evictions() const;

 private:
  using Key = std::pair<u16, u8>;  // a pair of group and use
  void fetch(Key key);
  void exchange(const GroupUse& use, u32 after);
  void accumulate(Key key);
  u32 reduce(u16 group, u32 backward);
  u32 evict(Key key, u32 after, TileRange tiles);
  u32 left(Key key, u32 instruction);
  void receive_tied_uses(const Group& group);
  void add_tied_uses(const Group& group);

  ListBuilder& list_;
  const ComputingOrder& order_;
  SlabPlan& slab_;
  std::map<Key, Slot> slots_;   // the slot in which each accumulator lies, if it is on the device
  std::map<Key, Slot> before_;  // the slots with the sums over the earlier micro-batches, if sums_each()
  std::map<Key, u32> fetched_, evicted_;
  // for each gradient: the instruction after which it is summed over all micro-batches so far and over the ranks
  std::map<Key, u32> summed_;
  LeavingSlots leaving_;
};

/// Moves the data that blocks keep between forward and backward, if it is kept outside the device. Where it travels
/// (Scheduling::activations_travel), it passes through slots of `slab`, into which the Forward copies it and from which the Backward copies
/// it: with a GPU slots of its memory, otherwise of host memory. Where it does not, it stays in its slot, which is in host memory.
class ActivationMoves {
 public:
  ActivationMoves(ListBuilder& list, const ComputingOrder& order, SlabPlan& slab, bool training)
      : list_(list), order_(order), slab_(slab), leaving_(list, slab), training_(training) {}

  void fetch_due(i64 position);
  /// Returns the activation policy that applies to the block. If the last block's backward follows its forward at once, with no other
  /// micro-batch between, its activations stay on the device. Blocks without a backward keep nothing.
  ActivationPolicy policy(u16 block) const;
  /// Returns true if this is the last block and the plan says that it keeps its logits. Logits that would have to be offloaded and fetched
  /// again are not kept, because recomputing them is faster.
  bool keeps_logits(u16 block) const;
  /// Returns the slot (planned memory) for the block's activations: a Forward writes it and a Backward or BackwardInput reads it. Returns
  /// an empty slot if the activations stay on the device, as those for a BackwardWeight always do.
  Slot slot(const Compute& c, std::vector<u32>& after);
  /// Called when `done`, the instruction that computes, has been added. After a Forward, evicts activations that travel. After a Backward
  /// or BackwardInput, frees the slot.
  void computed(const Compute& c, u32 done);

 private:
  using Key = std::pair<u16, u16>;  // a pair of block and micro-batch
  bool spills(u16 block) const { return policy(block).tier != Tier::device && list_.scheduling.spilled_bytes.at(block) > 0; }
  Instruction move(Op op, Lane lane, Key key);

  ListBuilder& list_;
  const ComputingOrder& order_;
  SlabPlan& slab_;
  LeavingSlots leaving_;
  const bool training_;
  std::map<u16, i64> live_;  // for each block: ComputingOrder::live()
  std::map<Key, Slot> slots_;
  std::map<Key, u32> evicted_, fetched_;
};

}  // namespace spillway::parallel
