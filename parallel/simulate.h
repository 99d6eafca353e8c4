// How long a list would take, before it is run: its lanes and `after` as the executor obeys them, each instruction's work at given rates.
// Lanes that compute at once share the cores, those that want the disk at once share it. Pure function; thread-safe.
#pragma once
#include <functional>

#include "parallel/executor.h"

namespace spillway::parallel {

/// One instruction by itself: seconds on `cores` of the machine's, and of the disk at its full rate.
struct Work {
  double cpu_s = 0, cores = 1;
  double read_s = 0, write_s = 0;
  bool in_turn = false;  // the disk first, then the cores (or the other way round, which takes as long); else both at once
};

struct Machine {
  double cores = 1;
  /// What the disk gives to reads and writes together: 1 where they share it, 2 where each goes on as if alone.
  double duplex = 1;
};

/// One Timing an instruction; disk_us is the time it had nothing to compute.
std::vector<Timing> simulate(const List& list, const std::function<Work(const Instruction&)>& work, const Machine& machine);

}  // namespace spillway::parallel
