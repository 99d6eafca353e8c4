// Counts what a kernel does, for tests of its cost.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "ptx/program.h"

namespace ptx {

struct Counters {
  std::uint64_t launches = 0, threads = 0, thread_instructions = 0, warp_instructions = 0, products = 0, barriers = 0;
  std::uint64_t global_loads = 0, global_load_sectors = 0, global_load_bytes = 0;
  std::uint64_t global_stores = 0, global_store_sectors = 0, global_store_bytes = 0;
  std::uint64_t shared_requests = 0, shared_waves = 0;  // waves: requests plus the repetitions that bank conflicts force
  std::uint64_t local_requests = 0;

  void add(const Counters& other);
  /// Counts a memory request of a warp. `addresses` are those of the lanes in the mask, in their own space.
  void request(Space space, const std::array<u64, kLanes>& addresses, u32 mask, u32 bytes, bool is_load);
};

/// Returns whether kernels are counted: if SPILLWAY_PTX_COUNTERS is set, and after count_anew().
bool counts();
/// Adds to the kernel's sums. They are printed when the process ends if SPILLWAY_PTX_COUNTERS is set.
void count(const std::string& kernel, const Counters& counters);
/// Counts from now on for the next counted().
void count_anew();
/// Returns the sums of each kernel by its mangled name since count_anew(). All launches to be counted must have ended.
std::map<std::string, Counters> counted();

}  // namespace ptx
