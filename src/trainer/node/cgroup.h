// Reads the limits of this process's control group (cgroup v1 or v2): the tightest memory limit and CPU quota of the
// group and its ancestors. Only /proc/self/cgroup and /sys/fs/cgroup are read, through the parameter `host`. Thread-safe.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "trainer/node/host.h"

namespace spillway::trainer {

struct CgroupMemory {
  i64 limit_bytes = 0, use_bytes = 0;  // use_bytes leaves out cached file pages, because the kernel drops them when memory is needed
  i64 left_bytes() const { return limit_bytes - use_bytes; }
};
/// Returns limit and use of the cgroup, this process's own or an ancestor, that has the least memory left. The result is empty if none has
/// a limit.
std::optional<CgroupMemory> cgroup_memory(const Host& host);
/// Returns how many processes the kernel has killed because of a memory limit of this process's cgroup or an ancestor.
i64 cgroup_oom_kills(const Host& host);
/// Returns the folders of this process's cgroup and its ancestors, its own first. The cgroup is that of the v1
/// controller, or the v2 one if there is no such controller. The result is empty if the process has no cgroup.
std::vector<std::string> cgroup_folders(const Host& host, const std::string& controller);
/// Returns the CPU quota of this process's cgroup in cores: 2.5 means the time of two and a half cores. The result is empty without a
/// quota.
std::optional<double> cgroup_cpus(const Host& host);

}  // namespace spillway::trainer
