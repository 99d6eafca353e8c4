// Implements the checker's rules for gradients. Each gradient is added up in ascending order of micro-batches, summed over the ranks and
// over the blocks that use the weight, and reduced. Then it is in the place where its optimizer update reads it. check.cc calls these
// functions in the order of the list.
#pragma once
#include <set>

#include "parallel/proof/checked_list.h"

namespace spillway::parallel {

/// The reduced gradients that one list of instructions leaves to the next: some lie in slots (planned device memory), each of which has
/// the id of its group; others are stored in the gradients' tier.
struct Gradients {
  std::vector<std::pair<Slot, u16>> in_slots;
  std::set<u16> at_rest;
};

class GradientRules {
 public:
  GradientRules(CheckedList& checked, const Gradients& found);

  void fetch(u32 i);
  void evict(u32 i);
  /// Checks an instruction that computes a block. Only a Backward or BackwardWeight writes gradients.
  void written(u32 i);
  void exchange(u32 i);
  void accumulate(u32 i);
  void add_tied(u32 i);
  void reduce(u32 i);
  /// Checks a SendTied or ReceiveTied between pipeline ranks.
  void tied(u32 i);
  void agree_norm(u32 i) const;
  void step(u32 i);
  /// Returns the reduced gradients that the list leaves to a later list.
  Gradients left() const;

 private:
  using Key = std::pair<u16, u8>;  // a pair of a parameter group and a block that uses it
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
  // For each gradient: the Accumulate instruction that added it to the sum of the earlier micro-batches, since the gradient's last
  // backward.
  std::map<Key, u32> accumulated_;
  std::map<Key, u32> written_;  // for each gradient: the last Backward or BackwardWeight that wrote it
  std::map<Key, u32> given_;    // for each gradient: the instruction that sent it to the rank that owns its group
  std::map<u16, u32> reduced_;
  std::set<u16> at_rest_;           // groups whose reduced gradient is stored in its tier
  std::set<Key> unadded_;           // tied weights, each with a block whose gradient is not yet added to those of the other blocks
  std::map<Key, u16> micro_batch_;  // the last micro-batch added to each gradient
};

}  // namespace spillway::parallel
