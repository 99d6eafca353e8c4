// A CheckedList holds the data that the checker's rules share: the walk over a list of instructions, and the layout, the placement (tier of
// each kind of data) and the scheduling from which the list was generated. Used by one thread.
#pragma once
#include <fmt/format.h>

#include <map>

#include "parallel/layout/residency.h"
#include "parallel/proof/list_walk.h"

namespace spillway::parallel {

struct CheckedList {
  ListWalk walk;
  Waiting waiting;  // the optimizer updates of the previous step that this list has to make
  bool tail;        // whether the list is a tail (the end of a step), which makes either all optimizer updates of this step or none
  bool speculates;  // whether the list is a head (the begin of a step) with speculative optimizer updates inside the backward
  const Layout& layout;
  const Scheduling& scheduling;
  const Residency& residency;

  /// Returns true if the group's deferred updates of the previous step must be made in this list.
  bool waits(u16 group) const {
    return !layout.groups[group].frozen && (waiting == Waiting::all || (waiting == Waiting::deferred && residency[group].deferred));
  }
  /// Returns true if the group's updates of this step must be made speculatively in this list, before AgreeNorm.
  bool speculates_on(u16 group) const { return speculates && !layout.groups[group].frozen && !residency[group].deferred; }

  const Instruction& operator[](u32 i) const { return walk.list()[i]; }

  /// Returns true if an instruction is recorded under `key` and the order of instructions guarantees that it is done before i starts.
  template <class Key>
  bool done(const std::map<Key, u32>& noted, const Key& key, u32 i) const {
    const auto found = noted.find(key);
    return found != noted.end() && walk.before(found->second, i);
  }
};

}  // namespace spillway::parallel
