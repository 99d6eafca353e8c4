// What the checker's rules share: the walk over a list, and what the list was generated from. Used by one thread.
#pragma once
#include <fmt/format.h>

#include <map>

#include "parallel/layout/residency.h"
#include "parallel/proof/list_walk.h"

namespace spillway::parallel {

struct CheckedList {
  ListWalk walk;
  OptimizerOverlap overlap;  // of a head; tails have none
  const Layout& layout;
  const Scheduling& scheduling;
  const Residency& residency;

  const Instruction& operator[](u32 i) const { return walk.list()[i]; }

  /// The instruction noted under `key` is done before i starts.
  template <class Key>
  bool done(const std::map<Key, u32>& noted, const Key& key, u32 i) const {
    const auto found = noted.find(key);
    return found != noted.end() && walk.before(found->second, i);
  }
};

}  // namespace spillway::parallel
