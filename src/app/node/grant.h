// What this process may use of the node. Memory: min(MemAvailable, cgroup v1 or v2 limit - use, Slurm's memory) / ranks on the node - 300
// MiB. Cores: min(affinity / ranks that share it, cgroup cpu quota / ranks
// on the node, SLURM_CPUS_PER_TASK). A cgroup's use does not count file pages the kernel can drop. Every
// ancestor of the process's cgroup counts; the tightest decides. Reads the Host alone. Thread-safe.
#pragma once
#include <optional>
#include <string>

#include "app/node/host.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "device/stream.h"

namespace spillway::app {

constexpr i64 kGrantReserveBytes = 300 * kMiB;

struct MemoryGrant {
  i64 total_bytes = 0, available_bytes = 0;                 // MemTotal, MemAvailable
  std::optional<i64> cgroup_limit_bytes, cgroup_use_bytes;  // of the level that leaves least
  std::optional<i64> slurm_bytes;
  i64 bytes = 0;        // the grant, never below 0
  std::string bounded;  // what decides: "MemAvailable", "the cgroup limit", "Slurm"
};
/// Throws Error(io) when /proc/meminfo does not say.
MemoryGrant memory_grant(const Host& host, int local_ranks = 1);

struct CoreGrant {
  int affinity = 1;
  std::optional<double> cgroup_quota;
  std::optional<int> slurm_cpus;
  int cores = 1;        // at least 1; a quota of 2.5 is 2: a throttled thread holds up the others
  std::string bounded;  // "affinity", "the cgroup quota", "Slurm"
};
/// Of a rank that has its affinity's cores in common with so many ranks, itself among them; the quota with all on the node. Slurm's number
/// is each rank's own.
CoreGrant core_grant(const Host& host, int sharers = 1, int local_ranks = 1);

/// While one lives, what this thread computes on the stream in force runs on all cores that the process may use. For commands of one
/// process that have no engine.
class OnAllCores {
 public:
  explicit OnAllCores(const Host& host = {});

 private:
  ThreadPool threads_;
  Stream stream_;
  StreamScope scope_;
};

struct Budgets {
  i64 device_bytes = 0, host_bytes = 0;
};
/// The CPU backend's rule: both come out of the one grant. A budget given is taken first, the other gets the rest; none given: all is
/// device. Together above the grant: Error(refused) with the sum, the grant and what bounds it.
Budgets split_grant(const MemoryGrant& grant, std::optional<i64> device_bytes, std::optional<i64> host_bytes);

}  // namespace spillway::app
