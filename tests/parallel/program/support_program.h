// Programs with a fault planted, for tests of the checker.
#pragma once
#include "parallel/program/program.h"

namespace spillway::test {

/// The list without one of its instructions, for which then nobody waits.
inline parallel::List without(parallel::List list, size_t at) {
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
  for (parallel::Instruction& i : list) {
    std::erase(i.after, at);
    for (u32& a : i.after) a -= a > at;
  }
  return list;
}

}  // namespace spillway::test
