// Breaks down the time of an instruction list, measured or simulated. It tells how long each lane (sequence of instructions of one kind)
// was busy, for which lanes the compute lane waited, and which chain of instructions determined the total time. Pure functions;
// thread-safe.
#pragma once
#include <array>
#include <span>

#include "parallel/program/program.h"
#include "parallel/program/timing.h"

namespace spillway::parallel {

/// Names the kinds of work on which instructions spend time. `memory` is copying between host and device
/// and the optimizer's work, which the CPU backend does at the speed of memory. `ranks` is communication,
/// that is, waiting for other ranks once this rank has arrived, and exchanging data.
enum class Resource : u8 { compute, memory, disk, data, ranks };
constexpr int kResources = 5;
std::string_view to_string(Resource resource);

struct Account {
  double seconds = 0;                      // seconds of the whole instruction list
  std::array<double, kLanes> busy_s{};     // seconds for which each lane (thread) was busy
  std::array<double, kLanes> awaited_s{};  // for each lane: seconds for which the compute lane waited for it
  /// The time of the critical path, by kind of work. The critical path is the chain of instructions that leads to the last one of the
  /// list, each of which waited for the one before. The sum over all kinds is the time of the list.
  std::array<double, kResources> chain_s{};

  Account& operator+=(const Account& other);
  /// Returns the kind of work on which the critical path spent most time.
  Resource bound_by() const;
};

Account account(const List& list, std::span<const Timing> timings);

}  // namespace spillway::parallel
