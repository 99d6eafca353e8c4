#include "trainer/node/cgroup.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string>
#include <vector>

namespace spillway::trainer {
namespace {

// cgroup v1 writes "no limit" as the largest number of whole pages, so every limit from kNoLimit on means that there is none.
constexpr i64 kNoLimit = i64{1} << 60;

std::optional<i64> number(const std::optional<std::string>& text) {
  i64 value = 0;
  if (!text) return std::nullopt;
  const auto r = std::from_chars(text->data(), text->data() + text->size(), value);
  return r.ec == std::errc() ? std::optional(value) : std::nullopt;
}

// Returns the value of `key` in a file with lines such as "key 123", or 0 if it has none.
i64 entry(const std::optional<std::string>& text, const std::string& key) {
  std::istringstream lines(text.value_or(""));
  std::string name;
  for (i64 value = 0; lines >> name >> value;) {
    if (name == key) return value;
  }
  return 0;
}

// Returns this process's path in the hierarchy of the cgroup controller, from /proc/self/cgroup.
// An empty `controller` stands for cgroup v2, whose line in that file begins with "0::".
std::optional<std::string> path_of(const Host& host, const std::string& controller) {
  std::istringstream lines(host.read("/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controller.empty() ? names == ",," : names.find("," + controller + ",") != names.npos) return line.substr(second + 1);
  }
  return std::nullopt;
}

// Returns the folder of this process's cgroup under `mount`, and the folders above it. In a cgroup namespace the
// path may not exist below the mount, or may contain "..". The mount itself then stands for the process's own group.
std::vector<std::string> levels(const std::string& mount, std::string path) {
  std::vector<std::string> all;
  if (path.find("..") != path.npos) path.clear();
  while (path.size() > 1) {
    all.push_back(mount + path);
    path.resize(path.rfind('/'));
  }
  all.push_back(mount);
  return all;
}

// Returns the bytes of cached file pages in a group's memory.stat, which the kernel drops when memory is needed. cgroup v1 puts "total_"
// before the names. Active pages count too: a file that is read twice, such as the model of a run that was started twice, is in the active
// list.
i64 droppable_bytes(const std::optional<std::string>& stat, const std::string& total) {
  return entry(stat, total + "inactive_file") + entry(stat, total + "active_file");
}

std::optional<CgroupMemory> tighter(std::optional<CgroupMemory> best, const CgroupMemory& level) {
  return !best || level.left_bytes() < best->left_bytes() ? level : best;
}

std::optional<CgroupMemory> memory_v1(const Host& host, const std::string& path) {
  std::optional<CgroupMemory> best;
  for (const std::string& folder : levels("/sys/fs/cgroup/memory", path)) {
    const auto limit = number(host.read(folder + "/memory.limit_in_bytes")), use = number(host.read(folder + "/memory.usage_in_bytes"));
    if (!limit || !use || *limit >= kNoLimit) continue;
    const i64 droppable = droppable_bytes(host.read(folder + "/memory.stat"), "total_");
    best = tighter(best, {*limit, std::max<i64>(*use - droppable, 0)});
  }
  return best;
}

std::optional<CgroupMemory> memory_v2(const Host& host, const std::string& path) {
  std::optional<CgroupMemory> best;
  for (const std::string& folder : levels("/sys/fs/cgroup", path)) {
    const auto use = number(host.read(folder + "/memory.current"));
    if (!use) continue;
    const i64 droppable = droppable_bytes(host.read(folder + "/memory.stat"), "");
    for (const char* file : {"/memory.max", "/memory.high"}) {
      // number() returns nothing for the text "max", which means that there is no limit
      const auto limit = number(host.read(folder + file));
      if (limit) best = tighter(best, {*limit, std::max<i64>(*use - droppable, 0)});
    }
  }
  return best;
}

std::optional<double> cpus_v1(const Host& host, const std::string& path) {
  std::optional<double> least;
  for (const char* mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
    for (const std::string& folder : levels(mount, path)) {
      const auto quota = number(host.read(folder + "/cpu.cfs_quota_us")), period = number(host.read(folder + "/cpu.cfs_period_us"));
      if (!quota || !period || *quota <= 0 || *period <= 0) continue;
      least = std::min(least.value_or(1e9), static_cast<double>(*quota) / static_cast<double>(*period));
    }
  }
  return least;
}

std::optional<double> cpus_v2(const Host& host, const std::string& path) {
  std::optional<double> least;
  for (const std::string& folder : levels("/sys/fs/cgroup", path)) {
    std::istringstream text(host.read(folder + "/cpu.max").value_or(""));
    double quota = 0, period = 0;
    if (text >> quota >> period && quota > 0 && period > 0) least = std::min(least.value_or(1e9), quota / period);
  }
  return least;
}

}  // namespace

std::optional<CgroupMemory> cgroup_memory(const Host& host) {
  if (const auto path = path_of(host, "memory")) return memory_v1(host, *path);
  const auto path = path_of(host, "");
  return path ? memory_v2(host, *path) : std::nullopt;
}

i64 cgroup_oom_kills(const Host& host) {
  i64 kills = 0;
  for (const std::string& folder : cgroup_folders(host, "memory")) {
    for (const char* file : {"/memory.oom_control", "/memory.events"}) kills = std::max(kills, entry(host.read(folder + file), "oom_kill"));
  }
  return kills;
}

std::vector<std::string> cgroup_folders(const Host& host, const std::string& controller) {
  if (const auto path = path_of(host, controller)) return levels("/sys/fs/cgroup/" + controller, *path);
  const auto path = path_of(host, "");
  return path ? levels("/sys/fs/cgroup", *path) : std::vector<std::string>();
}

std::optional<double> cgroup_cpus(const Host& host) {
  if (const auto path = path_of(host, "cpu")) return cpus_v1(host, *path);
  const auto path = path_of(host, "");
  return path ? cpus_v2(host, *path) : std::nullopt;
}

}  // namespace spillway::trainer
