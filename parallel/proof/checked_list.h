// What the checker's rules share: the walk over a list, and what the list was generated from. Used by one thread.
#pragma once
#include <fmt/format.h>

#include <map>

#include "parallel/layout/residency.h"
#include "parallel/proof/list_walk.h"

namespace spillway::parallel {

struct CheckedList {
  ListWalk walk;
  Waiting waiting;  // which Steps of the update before it does
  bool tail;        // which does all of this step's own update, or none
  bool speculates;  // a head of overlap backward
  const Layout& layout;
  const Scheduling& scheduling;
  const Residency& residency;

  /// The group's Steps of the update before are to be done in this list.
  bool waits(u16 group) const {
    return !layout.groups[group].frozen && (waiting == Waiting::all || (waiting == Waiting::deferred && residency[group].deferred));
  }
  /// Its Steps of this step's own update are, before AgreeNorm.
  bool speculates_on(u16 group) const { return speculates && !layout.groups[group].frozen && !residency[group].deferred; }

  const Instruction& operator[](u32 i) const { return walk.list()[i]; }

  /// The instruction noted under `key` is done before i starts.
  template <class Key>
  bool done(const std::map<Key, u32>& noted, const Key& key, u32 i) const {
    const auto found = noted.find(key);
    return found != noted.end() && walk.before(found->second, i);
  }
};

}  // namespace spillway::parallel
