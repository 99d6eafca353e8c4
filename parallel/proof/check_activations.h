// Implements the checker's rules for activations. Every Forward has its backward, whole or in two parts. The backward finds the
// activations that the Forward kept, and the data that other pipeline ranks sent, in their planned memory (slots). check.cc calls these
// functions in the order of the list.
#pragma once
#include <set>

#include "parallel/proof/checked_list.h"

namespace spillway::parallel {

class ActivationRules {
 public:
  explicit ActivationRules(CheckedList& checked) : c_(checked) {}

  void evict(u32 i);
  void fetch(u32 i);
  void send(u32 i);
  void receive(u32 i);
  /// Checks an instruction that computes a block.
  void block(u32 i);
  /// Throws an Error that names instruction i if some Forward does not have its complete backward yet.
  void all_computed(u32 i) const;

 private:
  using Key = std::pair<u16, u16>;  // a pair of block and micro-batch
  Key key(u32 i) const { return {c_[i].block, c_[i].micro_batch}; }
  ListWalk::Content kept(u32 i) const { return {What::activations, key(i), i}; }
  void order(u32 i);
  void take(std::map<Key, u32>& from, u32 i, const char* why);
  void spill(u32 i);
  void messages(u32 i);
  bool crosses(u16 block) const { return block != kNone && c_.layout.crosses(block); }

  CheckedList& c_;
  // forward_: Forwards that have no Backward or BackwardInput yet; input_: BackwardInputs that have no BackwardWeight yet.
  std::map<Key, u32> forward_, input_;
  std::map<Key, u32> evicted_;
  std::set<Key> spilled_;
};

}  // namespace spillway::parallel
