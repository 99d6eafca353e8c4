// The checker's rules for gradients: each is added up in ascending micro-batch order, summed over the ranks and over the uses of its
// weight, reduced, and then where its Step looks for it. Called by check.cc in the order of the list.
#pragma once
#include <set>

#include "parallel/proof/checked_list.h"

namespace spillway::parallel {

/// Reduced gradients between two lists: the slots that hold one, and the groups whose gradient rests in its tier.
struct Gradients {
  std::vector<std::pair<Slot, u16>> in_slots;
  std::set<u16> at_rest;
};

class GradientRules {
 public:
  GradientRules(CheckedList& checked, const Gradients& found);

  void fetch(u32 i);
  void evict(u32 i);
  /// By what computes a block: a Backward or BackwardWeight writes them.
  void written(u32 i);
  void exchange(u32 i);
  void accumulate(u32 i);
  void add_tied(u32 i);
  void reduce(u32 i);
  /// To and from other pipeline ranks.
  void tied(u32 i);
  void agree_norm(u32 i) const;
  void step(u32 i);
  /// What the list leaves.
  Gradients left() const;

 private:
  using Key = std::pair<u16, u8>;  // group, use
  static ListWalk::Content content(Key key, u32 by) { return {What::gradient, {key.first, key.second}, by}; }
  void expect(u32 i, const Slot& slot, Key key);
  void written(u32 i, Key key, const Slot& slot);
  void leaves(u32 i);
  void summed_before(u32 i, Key key) const;
  void all_given(u32 i, const Group& group) const;
  /// The group's reduced gradient is in its tier, or stays in its slot.
  bool rests_reduced(u32 i, u16 group) const;

  CheckedList& c_;
  std::map<Key, u32> evicted_, fetched_, exchanged_;
  std::map<Key, u32> accumulated_;  // with the micro-batches before, since its last backward
  std::map<Key, u32> written_;      // the last Backward or BackwardWeight that added to it
  std::map<Key, u32> given_;        // that have gone to their owner
  std::map<u16, u32> reduced_;
  std::set<u16> at_rest_;           // groups whose reduced gradient does
  std::set<Key> unadded_;           // uses of tied weights that await their AddTied
  std::map<Key, u16> micro_batch_;  // the last one added
};

}  // namespace spillway::parallel
