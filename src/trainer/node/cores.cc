#include "trainer/node/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "trainer/node/thread_variables.h"

namespace spillway::trainer {
namespace {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void bind_to(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);  // the result is ignored, because a rank that is not bound is only slower
}

std::vector<int> list_in(const Host& host, const std::string& file) { return parse_core_list(host.read(file).value_or("")); }

std::vector<int> both(const std::vector<int>& some, const std::vector<int>& others) {
  std::vector<int> common;
  for (const int core : some) {
    if (std::ranges::count(others, core) > 0) common.push_back(core);
  }
  return common;
}

// Divides `cores` by NUMA node. If /sys does not give the NUMA node of every core, the result is one node with all cores.
std::vector<std::vector<int>> numa_nodes(const Host& host, const std::vector<int>& cores) {
  std::vector<std::vector<int>> nodes;
  size_t placed = 0;
  for (const int node : list_in(host, "/sys/devices/system/node/online")) {
    std::vector<int> here = both(cores, list_in(host, fmt::format("/sys/devices/system/node/node{}/cpulist", node)));
    placed += here.size();
    if (!here.empty()) nodes.push_back(std::move(here));
  }
  if (placed != cores.size()) return {cores};
  return nodes;
}

// Groups `cores` by physical core, sorted by socket. Each group holds the hyperthreads of one physical core.
std::vector<std::vector<int>> physical_cores(const Host& host, const std::vector<int>& cores) {
  std::map<std::pair<int, int>, std::vector<int>> all;  // hyperthreads of a physical core, by socket and first hyperthread
  for (const int core : cores) {
    const std::string topology = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", core);
    const std::vector<int> socket = list_in(host, topology + "physical_package_id");
    const std::vector<int> siblings = list_in(host, topology + "thread_siblings_list");
    all[{socket.empty() ? 0 : socket[0], siblings.empty() ? core : siblings[0]}].push_back(core);
  }
  std::vector<std::vector<int>> in_order;
  for (auto& [where, threads] : all) in_order.push_back(std::move(threads));
  return in_order;
}

// Returns the range [begin, end) of `all` items that rank `rank` gets. It is never empty, so ranges overlap if there are more ranks than
// items.
std::pair<i64, i64> share(i64 all, int rank, int ranks) {
  const i64 begin = all * rank / ranks;
  return {begin, std::max(begin + 1, all * (rank + 1) / ranks)};
}

const std::string& gpu_of(const std::vector<std::string>& gpus, int local_rank) {
  return gpus[static_cast<size_t>(local_rank) % gpus.size()];
}

// Returns this rank's index among the local ranks whose GPUs are near the cores `near`, and the number of these ranks. All ranks
// must see the same list `gpus`. If each rank sees only one GPU, the answer is unknown, because each rank may see a different GPU.
std::pair<int, int> among_neighbours(const Host& host, const Launcher& launcher, const std::vector<std::string>& gpus,
                                     const std::vector<int>& near) {
  std::pair<int, int> mine{0, 0};
  for (int r = 0; r < launcher.local_ranks; ++r) {
    if (cores_near(host, gpu_of(gpus, r)) != near) continue;
    if (r < launcher.local_rank) ++mine.first;
    ++mine.second;
  }
  return mine;
}

}  // namespace

std::vector<int> parse_core_list(const std::string& text) {
  std::vector<int> cores;
  std::istringstream ranges(text);
  int first = 0;
  while (ranges >> first) {
    int last = first;
    if (ranges.peek() == '-') ranges.ignore() >> last;
    for (int core = first; core <= last && core < CPU_SETSIZE; ++core) cores.push_back(core);
    if (ranges.peek() == ',') ranges.ignore();
  }
  std::erase_if(cores, [](int core) { return core < 0; });
  return cores;
}

std::string core_list_text(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size(); ++i) {
    const size_t first = i;
    while (i + 1 < cores.size() && cores[i + 1] == cores[i] + 1) ++i;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[first]) + (i > first ? fmt::format("-{}", cores[i]) : "");
  }
  return text.empty() ? "?" : text;
}

std::vector<int> share_of_cores(const Host& host, const std::vector<int>& cores, int local_rank, int local_ranks) {
  std::vector<std::vector<int>> units;
  for (const std::vector<int>& node : numa_nodes(host, cores)) {
    for (std::vector<int>& core : physical_cores(host, node)) units.push_back(std::move(core));
  }
  if (std::ssize(units) < local_ranks) {
    std::vector<std::vector<int>> threads;
    for (const std::vector<int>& core : units) {
      for (const int thread : core) threads.push_back({thread});
    }
    units = std::move(threads);
  }
  const auto [begin, end] = share(std::ssize(units), local_rank, local_ranks);
  std::vector<int> mine;
  for (i64 u = begin; u < end; ++u) mine.insert(mine.end(), units[static_cast<size_t>(u)].begin(), units[static_cast<size_t>(u)].end());
  std::ranges::sort(mine);
  return mine;
}

std::vector<int> cores_near(const Host& host, const std::string& pci_device) {
  return list_in(host, "/sys/bus/pci/devices/" + pci_device + "/local_cpulist");
}

std::vector<int> cores_of_rank(const Host& host, const std::string& bind, const Launcher& launcher, const std::vector<int>& allowed,
                               const std::vector<std::string>& gpus) {
  const bool numa = bind == "numa", several = launcher.local_ranks > 1;
  const bool shares = several && (bind == "cores" || (bind == "auto" && launcher.shares_cores()));
  if (allowed.empty() || !(numa || shares)) return {};
  const std::vector<int> near = gpus.empty() ? std::vector<int>() : cores_near(host, gpu_of(gpus, launcher.local_rank));
  const std::vector<int> usable = both(allowed, near);
  if (numa && !usable.empty()) return usable;
  if (numa && !several) return {};
  if (numa) {
    const std::vector<std::vector<int>> nodes = numa_nodes(host, allowed);
    return nodes[static_cast<size_t>(std::ssize(nodes) * launcher.local_rank / launcher.local_ranks)];
  }
  if (usable.empty() || gpus.size() == 1) return share_of_cores(host, allowed, launcher.local_rank, launcher.local_ranks);
  const auto [number, neighbours] = among_neighbours(host, launcher, gpus, near);
  return share_of_cores(host, usable, number, neighbours);
}

void bind_to_share(const std::string& bind, const Launcher& launcher, const Host& host, const std::vector<std::string>& gpus) {
  const std::vector<int> mask = allowed_cores();
  const ThreadVariables variables = thread_variables(host, mask);
  const std::string how = bind == "auto" && variables.unbound ? "none" : bind;
  const std::vector<int> cores = cores_of_rank(host, how, launcher, variables.cpus.empty() ? mask : variables.cpus, gpus);
  if (!cores.empty()) return bind_to(cores);
  if (!variables.cpus.empty()) bind_to(variables.cpus);
}

}  // namespace spillway::trainer
