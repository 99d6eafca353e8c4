// A CheckedList is what the checker's rules share: the walk over a list, and what the list was generated from. Used by one thread.
#pragma once
#include <fmt/format.h>

#include <map>

#include "parallel/layout/residency.h"
#include "parallel/proof/list_walk.h"

namespace spillway::parallel {

struct CheckedList {
  ListWalk walk;
  Waiting waiting;  // which optimizer Steps of the previous update this list has to do
  bool tail;        // the list is a tail, which does either all optimizer Steps of this step's own update or none
  bool speculates;  // the list is a head under overlap backward, so it has speculative optimizer Steps
  const Layout& layout;
  const Scheduling& scheduling;
  const Residency& residency;

  /// Returns true if the group's optimizer Steps of the previous update must be done in this list.
  bool waits(u16 group) const {
    return !layout.groups[group].frozen && (waiting == Waiting::all || (waiting == Waiting::deferred && residency[group].deferred));
  }
  /// Returns true if the group's optimizer Steps of this step's own update must be done in this list, before AgreeNorm.
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
