// Implements the checker's rules for weights. Weights are in the place where a block reads them, and in the right generation (version).
// The optimizer updates that produce the next generation run in time, and their writes are complete before anything reads them. check.cc
// calls these functions in the order of the list.
#pragma once
#include <map>
#include <optional>

#include "parallel/proof/checked_list.h"

namespace spillway::parallel {

class WeightRules {
 public:
  explicit WeightRules(CheckedList& checked) : c_(checked) {}

  void fetch(u32 i);
  void gather(u32 i);
  void release(u32 i);
  /// Checks an instruction that computes a block.
  void read(u32 i);
  void step(u32 i);
  void commit(u32 i);
  void land(u32 i);
  /// Checks a SendTied or ReceiveTied between pipeline ranks.
  void tied(u32 i);
  /// Throws an Error that names instruction i unless all weights that the ranks update in parts and store whole have been gathered since
  /// their update.
  void all_spread(u32 i) const;
  void list_ended() const;

 private:
  void into_slot(u32 i);
  void spread(u32 i);
  void expect(u32 i, const Slot& slot, u16 group);
  void absent(u32 i, u16 group) const;
  void stepped_before(u32 i, u16 group) const;

  /// How far the list has come with one optimizer update: for each group, the last instruction of each kind.
  struct Done {
    std::map<u16, u32> stepped, landed, spread;
  };
  Done& of(u32 i) { return c_[i].deferred ? deferred_ : own_; }
  void all_spread(u32 i, const Done& done) const;

  CheckedList& c_;
  std::map<u16, u32> released_;
  Done deferred_, own_;
  std::optional<u32> committed_;  // index of the Commit instruction of the previous update
};

}  // namespace spillway::parallel
