#include "trainer/node/grant.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/error.h"
#include "base/units.h"
#include "device/memory_pool.h"
#include "trainer/node/cgroup.h"
#include "trainer/node/cores.h"

namespace spillway::trainer {
namespace {

std::optional<i64> whole(const std::optional<std::string>& text) {
  i64 value = 0;
  if (!text) return std::nullopt;
  const auto r = std::from_chars(text->data(), text->data() + text->size(), value);
  // Slurm writes 0 to mean all of the memory, which is no limit
  return r.ec == std::errc() && value > 0 ? std::optional(value) : std::nullopt;
}

// Returns the bytes that a line of /proc/meminfo such as "MemAvailable:   123 kB" gives for `key`.
i64 meminfo_bytes(const Host& host, const std::string& key) {
  std::istringstream lines(host.read("/proc/meminfo").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    i64 kib = 0;
    if (words >> name >> kib && name == key + ":") return kib * kKiB;
  }
  throw Error(ErrorCode::io,
              "[grant] expected " + key + " in /proc/meminfo, got none: is /proc mounted? give --device-memory and --host-memory");
}

std::vector<int> allowed_cpus(const Host& host) {
  std::istringstream lines(host.read("/proc/thread-self/status").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("Cpus_allowed_list:")) continue;
    return parse_core_list(line.substr(line.find(':') + 1));
  }
  return {};
}

std::optional<i64> slurm_memory_bytes(const Host& host) {
  if (const auto mib = whole(host.env("SLURM_MEM_PER_NODE"))) return *mib * kMiB;
  const auto mib = whole(host.env("SLURM_MEM_PER_CPU"));
  if (!mib) return std::nullopt;
  auto cpus = whole(host.env("SLURM_CPUS_ON_NODE"));
  if (!cpus) cpus = whole(host.env("SLURM_CPUS_PER_TASK"));
  return *mib * kMiB * cpus.value_or(1);
}

}  // namespace

MemoryGrant memory_grant(const Host& host, int local_ranks) {
  MemoryGrant grant;
  grant.total_bytes = meminfo_bytes(host, "MemTotal");
  grant.available_bytes = meminfo_bytes(host, "MemAvailable");
  grant.slurm_bytes = slurm_memory_bytes(host);
  i64 least = grant.available_bytes;
  grant.bounded = "MemAvailable";
  if (const auto cgroup = cgroup_memory(host)) {
    grant.cgroup_limit_bytes = cgroup->limit_bytes;
    grant.cgroup_use_bytes = cgroup->use_bytes;
    if (cgroup->left_bytes() < least) {
      least = cgroup->left_bytes();
      grant.bounded = "the cgroup limit";
    }
  }
  if (grant.slurm_bytes && *grant.slurm_bytes < least) {
    least = *grant.slurm_bytes;
    grant.bounded = "Slurm's memory";
  }
  grant.bytes = std::max<i64>(least / std::max(local_ranks, 1) - kGrantReserveBytes, 0);
  return grant;
}

CoreGrant core_grant(const Host& host, int sharers, int local_ranks) {
  CoreGrant grant;
  grant.cpus = allowed_cpus(host);
  grant.variables = thread_variables(host, grant.cpus);
  if (!grant.variables.cpus.empty()) grant.cpus = grant.variables.cpus;
  grant.affinity = std::max(static_cast<int>(grant.cpus.size()), 1);
  grant.cores = std::max(grant.affinity / sharers, 1);
  grant.bounded = "affinity";
  grant.cgroup_quota = cgroup_cpus(host);
  grant.slurm_cpus = grant.variables.slurm_cpus;
  if (grant.cgroup_quota && *grant.cgroup_quota / local_ranks < grant.cores) {
    grant.cores = std::max(static_cast<int>(*grant.cgroup_quota / local_ranks), 1);
    grant.bounded = "the cgroup quota";
  }
  if (grant.slurm_cpus && *grant.slurm_cpus < grant.cores) {
    grant.cores = *grant.slurm_cpus;
    grant.bounded = "SLURM_CPUS_PER_TASK";
  }
  grant.threads = std::min(grant.cores, grant.variables.threads.value_or(grant.cores));
  return grant;
}

namespace {

// Returns why the variable does not decide; empty if it does.
std::string unused_because(const ThreadVariable& variable, const ThreadVariables& all, const ThreadsInUse& in_use) {
  if (!variable.unused.empty()) return variable.unused;
  const bool counts = variable.name == "OMP_NUM_THREADS" || variable.name == "SLURM_CPUS_PER_TASK";
  if (counts && in_use.by_flag) return "--threads is given";
  const bool pins = variable.name == "OMP_PROC_BIND" || variable.name == "KMP_AFFINITY";
  const bool binds = in_use.bind == "cores" || in_use.bind == "numa";
  return pins && all.unbound && binds ? "--bind " + in_use.bind + " is given" : "";
}

// Returns what follows from a number of threads that is not the number of cores.
std::string count_note(int threads, int cores) {
  if (threads < cores) return fmt::format(", of {} cores; --threads {} uses all", cores, cores);
  return threads > cores ? fmt::format(", which is more than the {} core{} granted", cores, cores == 1 ? "" : "s") : "";
}

}  // namespace

std::string threads_line(const CoreGrant& grant, const ThreadsInUse& in_use) {
  std::vector<std::string> parts;
  if (in_use.by_flag) parts.push_back(fmt::format("--threads {}", in_use.threads));
  for (const ThreadVariable& variable : grant.variables.set) {
    const std::string unused = unused_because(variable, grant.variables, in_use);
    const bool count = unused.empty() && variable.name == "OMP_NUM_THREADS";
    parts.push_back(variable.name + "=" + variable.value + (unused.empty() ? "" : " is not used: " + unused) +
                    (count ? count_note(*grant.variables.threads, grant.cores) : ""));
  }
  return fmt::format("threads: {}{} on CPU{} {}{}", in_use.threads, in_use.ranks > 1 ? " a rank, those of the first" : "",
                     grant.cpus.size() == 1 ? "" : "s", core_list_text(grant.cpus),
                     parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, "; ")));
}

std::string shared_cores_notice(i64 ranks, const CoreGrant& whole) {
  if (ranks <= whole.cores) return "";
  return fmt::format(
      "--ranks {}: {} ranks share {} core{} (limited by {}), so they wait for each other and a step takes longer than with --ranks {}",
      ranks, ranks, whole.cores, whole.cores == 1 ? "" : "s", whole.bounded, whole.cores);
}

OnAllCores::OnAllCores(const Host& host)
    : threads_(core_grant(host).threads), stream_{Device::cpu(), &threads_, &MemoryPool::heap()}, scope_(stream_) {}

Budgets split_grant(const MemoryGrant& grant, std::optional<i64> device_bytes, std::optional<i64> host_bytes) {
  const i64 device = device_bytes.value_or(0), host = host_bytes.value_or(0);
  // Two comparisons are made instead of one, because the sum of two absurdly large budgets could overflow.
  if (device > grant.bytes || host > grant.bytes - device) {
    throw Error(ErrorCode::refused, "[budgets] expected --device-memory " + format_bytes(device) + " and --host-memory " +
                                        format_bytes(host) + " to fit the memory granted to this process, got a grant of " +
                                        format_bytes(grant.bytes) + " (bounded by " + grant.bounded +
                                        "): lower one of them, or free memory");
  }
  if (device_bytes && host_bytes) return {device, host};
  if (device_bytes) return {device, grant.bytes - device};
  return {grant.bytes - host, host};
}

}  // namespace spillway::trainer
