// Makes instruction lists with a planted fault, for tests of the checker of instruction lists.
#pragma once
#include "parallel/program/program.h"

namespace spillway::test {

/// Returns the list without the instruction at index `at`. Other instructions no longer wait for the deleted one.
inline parallel::List without(parallel::List list, size_t at) {
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
  for (parallel::Instruction& i : list) {
    std::erase(i.after, at);
    for (u32& a : i.after) a -= a > at;
  }
  return list;
}

}  // namespace spillway::test
