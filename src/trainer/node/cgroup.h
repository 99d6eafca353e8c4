// Reads the limits of this process's control group (cgroup v1 or v2): the tightest memory limit and CPU quota of the group and its
// ancestors. Only /proc/self/cgroup and /sys/fs/cgroup of the Host are read. Thread-safe.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "trainer/node/host.h"

namespace spillway::trainer {

struct CgroupMemory {
  i64 limit_bytes = 0, use_bytes = 0;  // use_bytes leaves out cached file pages, which the kernel drops when memory is needed
  i64 left_bytes() const { return limit_bytes - use_bytes; }
};
/// Returns limit and use of the level (the group or an ancestor) with the least memory left; empty if no level has a limit.
std::optional<CgroupMemory> cgroup_memory(const Host& host);
/// Returns how many processes the kernel has killed because of a memory limit of this group or an ancestor.
i64 cgroup_oom_kills(const Host& host);
/// Returns the folders of this process's group and its ancestors, the group first. The group is that of the v1 controller, or the v2 group
/// if there is no such controller. Empty if the process has no group.
std::vector<std::string> cgroup_folders(const Host& host, const std::string& controller);
/// Returns the CPU quota in cores (2.5 is the time of two and a half cores); empty without a quota.
std::optional<double> cgroup_cpus(const Host& host);

}  // namespace spillway::trainer
