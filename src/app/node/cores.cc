#include "app/node/cores.h"

#include <sched.h>

#include <algorithm>

namespace spillway::app {
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
  sched_setaffinity(0, sizeof set, &set);  // where it is forbidden all goes on, more slowly
}

}  // namespace

std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_ranks) {
  const i64 all = std::ssize(cores), begin = all * local_rank / local_ranks;
  const i64 end = std::max(begin + 1, all * (local_rank + 1) / local_ranks);
  return {cores.begin() + begin, cores.begin() + end};
}

void bind_to_share(const std::string& bind, const Launcher& launcher) {
  if (launcher.local_ranks == 1 || !(bind == "cores" || (bind == "auto" && launcher.shares_cores()))) return;
  const std::vector<int> cores = allowed_cores();
  if (!cores.empty()) bind_to(share_of_cores(cores, launcher.local_rank, launcher.local_ranks));
}

}  // namespace spillway::app
