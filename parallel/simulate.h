// How long a list would take, before it is run: its lanes and `after` as the executor obeys them, each instruction's work at given rates.
// What two lanes want of the disk at once they share. Pure function; thread-safe.
#pragma once
#include <array>
#include <functional>

#include "parallel/program.h"

namespace spillway::parallel {

/// Seconds of work of one instruction by itself: the longer of the two is how long it takes alone.
struct Work {
  double compute_s = 0;  // of its lane's threads, or of the memory behind them
  double disk_s = 0;     // of the shared disk
};

struct Simulation {
  double seconds = 0;
  std::array<double, kLanes> busy_s{};  // by lane
  double disk_s = 0;                    // total wanted of the disk
};

Simulation simulate(const List& list, const std::function<Work(const Instruction&)>& work);

}  // namespace spillway::parallel
