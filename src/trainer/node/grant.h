// Computes how much of the node's memory and cores this process may use.
// Memory: min(MemAvailable, cgroup v1 or v2 limit - use, Slurm's memory) / ranks on the node - 300 MiB.
// Cores: min(affinity / ranks that share it, cgroup CPU quota / ranks on the node, SLURM_CPUS_PER_TASK). A list of CPUs in an environment
// variable of OpenMP (thread_variables.h) reduces the affinity. Threads: as many as cores, or OMP_NUM_THREADS if that is less.
// A cgroup's use does not include file pages that the kernel can drop. The process's cgroup and all its ancestors
// are considered, and the tightest decides. The machine is read only through the parameter `host`. Thread-safe.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "base/types.h"
#include "device/stream.h"
#include "trainer/node/host.h"
#include "trainer/node/thread_variables.h"

namespace spillway::trainer {

constexpr i64 kGrantReserveBytes = 300 * kMiB;

struct MemoryGrant {
  i64 total_bytes = 0, available_bytes = 0;  // MemTotal and MemAvailable of /proc/meminfo
  // limit and use of this process's cgroup or of the ancestor with the least memory left
  std::optional<i64> cgroup_limit_bytes, cgroup_use_bytes;
  std::optional<i64> slurm_bytes;
  i64 bytes = 0;        // memory that the process may use, never below 0
  std::string bounded;  // the limit that decides: "MemAvailable", "the cgroup limit" or "Slurm's memory"
};
/// Returns the memory that each of the node's `local_ranks` ranks may use. Throws Error(io) if /proc/meminfo lacks MemTotal or
/// MemAvailable.
MemoryGrant memory_grant(const Host& host, int local_ranks = 1);

struct CoreGrant {
  int affinity = 1;  // number of `cpus`, at least 1
  std::vector<int> cpus;
  std::optional<double> cgroup_quota;
  std::optional<int> slurm_cpus;
  int cores = 1;        // at least 1; a quota of 2.5 gives 2, because a throttled thread would delay all others
  std::string bounded;  // the limit that decides: "affinity", "the cgroup quota" or "SLURM_CPUS_PER_TASK"
  int threads = 1;      // number of compute threads without --threads, at most `cores`
  ThreadVariables variables;
};
/// Returns the cores that one rank may use. The cores of its affinity mask are shared by `sharers` ranks, itself
/// included. The cgroup's quota is shared by all `local_ranks` ranks of the node. SLURM_CPUS_PER_TASK counts per rank.
CoreGrant core_grant(const Host& host, int sharers = 1, int local_ranks = 1);

/// The number of threads that a rank runs on a grant, and what decided it.
struct ThreadsInUse {
  int threads = 1, ranks = 1;
  bool by_flag = false;       // true if --threads is given
  std::string bind = "auto";  // the value of --bind
};
/// Returns a line such as "threads: 4 on CPUs 0-3 (OMP_NUM_THREADS=4; OMP_PLACES=x is not used: expected …)": the number of threads, their
/// CPUs, and each variable of ThreadVariables that is set.
std::string threads_line(const CoreGrant& grant, const ThreadsInUse& in_use);
/// Returns a warning if so many ranks of one node share the cores of `whole`, the grant of one rank that is alone, that a core has several
/// ranks. Otherwise returns an empty string.
std::string shared_cores_notice(i64 ranks, const CoreGrant& whole);

/// While an OnAllCores object lives, this thread's current stream runs its work on all cores that
/// the process may use. It is for commands that run in one process and have no training engine.
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
/// Divides the memory grant between device and host memory on the CPU backend, where both are the same memory. A budget that
/// is given is subtracted first, and the other budget gets the rest. If none is given, everything is device memory. Throws
/// Error(refused), which names the budgets, the grant and the limit that decides, if the budgets together exceed the grant.
Budgets split_grant(const MemoryGrant& grant, std::optional<i64> device_bytes, std::optional<i64> host_bytes);

}  // namespace spillway::trainer
