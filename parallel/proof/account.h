// Where the time of a list went, from its instructions' times, measured or simulated alike: how long each lane was busy, for which lanes
// the compute lane stood still, and what the list could not have been shorter than. Pure functions; thread-safe.
#pragma once
#include <array>
#include <span>

#include "parallel/program/program.h"
#include "parallel/program/timing.h"

namespace spillway::parallel {

/// What an instruction spends its time on. On the CPU backend what moves between host and device goes through memory, the optimizer too.
/// ranks: meeting others, from when this rank has come until all have, and what is exchanged.
enum class Resource : u8 { compute, memory, disk, data, ranks };
constexpr int kResources = 5;
std::string_view to_string(Resource resource);

struct Account {
  double seconds = 0;                      // of the list
  std::array<double, kLanes> busy_s{};     // by lane
  std::array<double, kLanes> awaited_s{};  // by lane: the compute lane had nothing to do until it was done
  /// Of the chain of instructions, each of which waited for the one before, that ends the list: its time by what it went to. Their sum is
  /// the list's.
  std::array<double, kResources> chain_s{};

  Account& operator+=(const Account& other);
  /// What the chain spent most time on.
  Resource bound_by() const;
};

Account account(const List& list, std::span<const Timing> timings);

}  // namespace spillway::parallel
