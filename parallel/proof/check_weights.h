// The checker's rules for weights: they are in the place where a block reads them, in the right generation, and the Steps that produce the
// next generation come in time and land. Called by check.cc in the order of the list.
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
  /// Refuses instruction i unless all weights that were stepped in parts and are stored whole have been gathered.
  void all_spread(u32 i) const;
  void list_ended() const;

 private:
  void into_slot(u32 i);
  void spread(u32 i);
  void expect(u32 i, const Slot& slot, u16 group);
  void absent(u32 i, u16 group) const;
  void stepped_before(u32 i, u16 group) const;

  /// The progress of one update in the list: by group, the last instruction that did each thing.
  struct Done {
    std::map<u16, u32> stepped, landed, spread;
  };
  Done& of(u32 i) { return c_[i].deferred ? deferred_ : own_; }
  void all_spread(u32 i, const Done& done) const;

  CheckedList& c_;
  std::map<u16, u32> released_;
  Done deferred_, own_;
  std::optional<u32> committed_;  // the Commit of the previous update
};

}  // namespace spillway::parallel
