// The checker's rules for gradients: each is added up in ascending order of micro-batches, summed over the ranks and over the uses of its
// weight, reduced, and then in the place where its Step reads it. Called by check.cc in the order of the list.
#pragma once
#include <set>

#include "parallel/proof/checked_list.h"

namespace spillway::parallel {

/// The reduced gradients that one list leaves to another: the slots that hold one, and the groups whose gradient is stored in its tier.
struct Gradients {
  std::vector<std::pair<Slot, u16>> in_slots;
  std::set<u16> at_rest;
};

class GradientRules {
 public:
  GradientRules(CheckedList& checked, const Gradients& found);

  void fetch(u32 i);
  void evict(u32 i);
  /// Checks an instruction that computes a block; a Backward or BackwardWeight writes gradients.
  void written(u32 i);
  void exchange(u32 i);
  void accumulate(u32 i);
  void add_tied(u32 i);
  void reduce(u32 i);
  /// Checks a SendTied or ReceiveTied between pipeline ranks.
  void tied(u32 i);
  void agree_norm(u32 i) const;
  void step(u32 i);
  /// Returns the reduced gradients that the list leaves.
  Gradients left() const;

 private:
  using Key = std::pair<u16, u8>;  // (group, use)
  static ListWalk::Content content(Key key, u32 by) { return {What::gradient, {key.first, key.second}, by}; }
  void expect(u32 i, const Slot& slot, Key key);
  void written(u32 i, Key key, const Slot& slot);
  void leaves(u32 i);
  void summed_before(u32 i, Key key) const;
  void all_given(u32 i, const Group& group) const;
  /// Returns true if the group's reduced gradient is stored in its tier before instruction i.
  bool rests_reduced(u32 i, u16 group) const;

  CheckedList& c_;
  std::map<Key, u32> evicted_, fetched_, exchanged_;
  std::map<Key, u32> accumulated_;  // added to the earlier micro-batches since its last backward
  std::map<Key, u32> written_;      // the last Backward or BackwardWeight that added to it
  std::map<Key, u32> given_;        // the instruction that sent a gradient to its owner
  std::map<u16, u32> reduced_;
  std::set<u16> at_rest_;           // groups whose reduced gradient is stored in its tier
  std::set<Key> unadded_;           // uses of tied weights that have not been added by an AddTied
  std::map<Key, u16> micro_batch_;  // the last micro-batch added to each gradient
};

}  // namespace spillway::parallel
