// The control group (v1 or v2) this process lies in: the tightest memory limit and cpu quota among it and its ancestors. Reads
// /proc/self/cgroup and /sys/fs/cgroup of the Host. Thread-safe.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "app/node/host.h"
#include "base/types.h"

namespace spillway::app {

struct CgroupMemory {
  i64 limit_bytes = 0, use_bytes = 0;  // use: without pages of files, which the kernel drops for whoever asks
  i64 left_bytes() const { return limit_bytes - use_bytes; }
};
/// Of the level that leaves least; empty without a limit.
std::optional<CgroupMemory> cgroup_memory(const Host& host);
/// How often the kernel killed a process for the sake of a limit of this group or of one above it.
i64 cgroup_oom_kills(const Host& host);
/// Where this process's group of a v1 controller, else its v2 group, tells of itself; then those above it. Empty without groups.
std::vector<std::string> cgroup_folders(const Host& host, const std::string& controller);
/// Cores' worth of time; empty without a quota.
std::optional<double> cgroup_cpus(const Host& host);

}  // namespace spillway::app
