#include "app/commands/findings.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "base/error.h"
#include "base/units.h"
#include "device/device_query.h"
#include "device/peer_probe.h"
#include "kernels/products/gpu_libraries.h"
#include "offload/scratch_folder.h"
#include "offload/scratch_path.h"
#include "parallel/exchange/nccl_exchange.h"
#include "trainer/node/calibration.h"
#include "trainer/node/grant.h"
#include "trainer/node/launcher.h"

namespace spillway::app {
namespace {

// kLeastGrantBytes is the least memory with which training is possible: with less, not even gpt2-tiny and its activations fit.
constexpr i64 kLeastGrantBytes = 256 * kMiB;
// kQueuesBytes is more than io_uring's queues take. Kernels before 5.12 count the queues as locked memory.
constexpr i64 kQueuesBytes = 64 * kKiB;

Finding cores(const Host& host) {
  const CoreGrant grant = core_grant(host);
  std::string text = fmt::format("{} granted, bounded by {} (affinity {}", grant.cores, grant.bounded, grant.affinity);
  if (grant.cgroup_quota) text += fmt::format(", cgroup quota {:.2f}", *grant.cgroup_quota);
  if (grant.slurm_cpus) text += fmt::format(", SLURM_CPUS_PER_TASK {}", *grant.slurm_cpus);
  return {Level::green, "cores", text + ")", ""};
}

Finding threads(const Host& host) {
  const CoreGrant grant = core_grant(host);
  const std::string line = threads_line(grant, {.threads = grant.threads});
  const bool wrong = std::ranges::any_of(grant.variables.set, &ThreadVariable::wrong);
  return {wrong ? Level::yellow : Level::green, "threads",
          line.substr(line.find(' ') + 1) + (grant.variables.set.empty() ? " (no environment variable sets them)" : ""),
          wrong ? "a run does not use the variables that are not as expected" : ""};
}

// Returns whether the processor lists the feature. The result is empty if /proc/cpuinfo does not list any features.
std::optional<bool> has_feature(const Host& host, const std::string& name) {
  std::istringstream lines(host.read("/proc/cpuinfo").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return std::find(std::istream_iterator<std::string>(words), {}, name) != std::istream_iterator<std::string>();
  }
  return {};
}

std::string yes_or_no(std::optional<bool> known) { return !known ? "unknown" : *known ? "yes" : "no"; }

Finding instruction_set(const Host& host) {
  std::string all;
  for (const optim::Isa isa : optim::available_isas()) all += (all.empty() ? "" : " ") + std::string(optim::to_string(isa));
  const bool scalar = optim::resolve(optim::Isa::best) == optim::Isa::scalar;
  return {scalar ? Level::yellow : Level::green, "instruction set",
          fmt::format("{} (of {}), AVX512_BF16 {}, AMX_BF16 {}", optim::to_string(optim::resolve(optim::Isa::best)), all,
                      yes_or_no(has_feature(host, "avx512_bf16")), yes_or_no(has_feature(host, "amx_bf16"))),
          scalar ? "the optimizer uses no vector instructions, which is slow" : ""};
}

Finding memory(const Host& host) {
  const MemoryGrant grant = memory_grant(host);
  std::string text = fmt::format("{} granted, bounded by {} ({} of {} available", format_bytes(grant.bytes), grant.bounded,
                                 format_bytes(grant.available_bytes), format_bytes(grant.total_bytes));
  if (grant.cgroup_limit_bytes) {
    text += fmt::format(", cgroup limit {} with {} in use", format_bytes(*grant.cgroup_limit_bytes), format_bytes(*grant.cgroup_use_bytes));
  }
  if (grant.slurm_bytes) text += ", Slurm " + format_bytes(*grant.slurm_bytes);
  const bool poor = grant.bytes < kLeastGrantBytes;
  return {poor ? Level::red : Level::green, "memory", text + ")", poor ? "free memory, or ask the batch system for more (--mem)" : ""};
}

Finding memlock() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {Level::green, "memlock", "unlimited", ""};
  const bool low = limit.rlim_cur < static_cast<rlim_t>(kQueuesBytes);
  return {low ? Level::yellow : Level::green, "memlock", format_bytes(static_cast<i64>(limit.rlim_cur)),
          low ? "with this limit a kernel before 5.12 may refuse io_uring, and pread is used instead; ulimit -l unlimited allows io_uring"
              : ""};
}

Finding scratch_path(const offload::ScratchInfo& info, const ScratchPath& asked) {
  Finding found{Level::green, "scratch " + asked.path, "", ""};
  found.text = fmt::format("{}, {} free of {}, {}", info.filesystem.name, format_bytes(info.free_bytes), format_bytes(info.total_bytes),
                           info.direct ? "O_DIRECT" : "no O_DIRECT");
  if (!info.exists) found.text += ", to be created";
  if (info.filesystem.network) {
    found.level = Level::red;
    found.cure = "a network filesystem is slow and shared: give a local disk, or --allow-network-nvme";
  } else if (asked.bytes && *asked.bytes > info.free_bytes) {
    found.level = Level::red;
    found.cure = "less than " + format_bytes(*asked.bytes) + " is free: lower the size after the path (--nvme PATH:SIZE), or free space";
  } else if (info.filesystem.memory) {
    found.level = Level::yellow;
    found.cure = "files in this filesystem take host memory and count as host memory";
  } else if (!info.direct) {
    found.level = Level::yellow;
    found.cure = "reads and writes go through the page cache";
  }
  return found;
}

void look_at_orphans(const std::string& path, bool reclaim, std::vector<Finding>& findings) {
  for (const offload::Orphan& orphan : offload::list_orphans(path)) {
    const std::string owner = orphan.owner.empty() ? "" : ", " + orphan.owner;
    std::string text =
        fmt::format("{}: {}, {} old{}", orphan.name, format_bytes(orphan.bytes), format_duration(static_cast<double>(orphan.age_s)), owner);
    if (!reclaim) {
      const char* why = orphan.set_aside
                            ? "a restart of the run resumed from something else and kept this state; a later start that matches it can "
                              "resume from it, unless it is damaged; doctor --reclaim removes it"
                            : "a dead run left it; doctor --reclaim removes it";
      findings.push_back({Level::yellow, "orphan in " + path, text, why});
      continue;
    }
    try {
      offload::remove_orphan(path, orphan.name);
      findings.push_back({Level::green, "orphan in " + path, text + ", removed", ""});
    } catch (const Error& error) {
      findings.push_back({Level::red, "orphan in " + path, text, error.what()});
    }
  }
}

}  // namespace

const char* to_string(Level level) {
  constexpr const char* kNames[] = {"green", "yellow", "red"};
  return kNames[static_cast<size_t>(level)];
}

std::vector<Finding> look_at_host(const Host& host) { return {cores(host), threads(host), instruction_set(host), memory(host), memlock()}; }

Finding look_at_calibration(const Host& host) {
  const Calibration c = load_calibration(host);
  if (!c.warning.empty()) return {Level::yellow, "bench", c.measured ? "measured in part" : "not usable", c.warning};
  if (!c.measured) return {Level::yellow, "bench", "not measured", "plan uses built-in constants until spillway bench has run"};
  const Calibration constants;
  std::vector<std::string> all;
  const auto add = [&](const char* format, double Calibration::*figure, double unit) {
    if (c.*figure != constants.*figure) all.push_back(fmt::format(fmt::runtime(format), c.*figure / unit));
  };
  add("memory {:.1f} GB/s", &Calibration::memory_bytes_per_s, 1e9);
  add("f32 {:.0f} GFLOP/s", &Calibration::matmul_flops_f32, 1e9);
  add("bf16 {:.0f} GFLOP/s", &Calibration::matmul_flops_bf16, 1e9);
  add("cpu-adam {:.2f} ns/parameter", &Calibration::adam_ns_per_parameter, 1);
  if (c.ranks_measured)
    all.push_back(fmt::format("{} ranks reduce-scatter at {:.1f} and all-gather at {:.1f} GB/s", kBenchRanks,
                              c.reduce_scatter_bytes_per_s / 1e9, c.all_gather_bytes_per_s / 1e9));
  if (c.threads > 0) all.push_back(fmt::format("on {} thread{}", c.threads, c.threads == 1 ? "" : "s"));
  for (const DiskRates& disk : c.disks)
    all.push_back(fmt::format("{} reads {:.2f} writes {:.2f} GB/s", disk.path, disk.read_bytes_per_s / 1e9, disk.write_bytes_per_s / 1e9));
  return {Level::green, "bench", fmt::format("{}", fmt::join(all, ", ")), ""};
}

Finding look_at_io(offload::IoEngineKind kind) {
  try {
    const std::string why = offload::make_io_engine(kind).why;
    const bool fallback = kind == offload::IoEngineKind::automatic && !why.starts_with("io_uring");
    return {fallback ? Level::yellow : Level::green, "I/O engine", why, fallback ? "a few threads read and write nvme instead" : ""};
  } catch (const Error& error) {
    return {Level::red, "I/O engine", error.what(), "leave --io-engine out: pread is used instead"};
  }
}

std::vector<Finding> look_at_scratch(const ScratchPath& scratch, bool login, bool reclaim) {
  std::vector<Finding> findings;
  try {
    findings.push_back(scratch_path(offload::inspect_scratch(scratch.path), scratch));
    look_at_orphans(scratch.path, reclaim, findings);
  } catch (const Error& error) {
    findings.push_back({Level::red, "scratch " + scratch.path, error.what(), "give a folder on a local disk that you can write to"});
  }
  for (Finding& found : findings) {
    if (login && found.level == Level::red) found.level = Level::yellow;
  }
  return findings;
}

Finding look_at_gpu(const Host& host) {
  const GpuReport report = query_gpus();
  std::string text;
  bool all = true;
  for (const GpuFacts& gpu : report.gpus) {
    all &= gpu.problem.empty();
    text += fmt::format("{}cuda:{} {}, {} free of {}{}", text.empty() ? "" : "; ", gpu.index, gpu.name, format_bytes(gpu.free_bytes),
                        format_bytes(gpu.total_bytes), gpu.problem.empty() ? "" : " (" + gpu.problem + ")");
  }
  if (!text.empty()) {
    const std::string missing = kernels::missing_gpu_library();
    return {all && missing.empty() ? Level::green : Level::yellow, "GPU", text, missing};
  }
  const bool driver = host.read("/proc/driver/nvidia/version").has_value();
  const std::string none = report.problem.empty() ? "none" : "none (" + report.problem + ")";
  return {driver ? Level::yellow : Level::green, "GPU", none,
          driver ? "an NVIDIA driver is installed, but no GPU can be used: training runs on the CPU" : ""};
}

std::vector<Finding> look_at_peers() {
  const PeerReport report = probe_peers();
  std::vector<Finding> findings;
  if (report.gpus == 0) {
    if (!report.problem.empty())
      findings.push_back({Level::red, "GPU", report.problem, "reboot the node, or ask its administrator; --device cpu trains on the CPU"});
    return findings;
  }
  if (report.gpus > 1) {
    const bool well = report.problem.empty();
    const std::string text =
        fmt::format("{} of {} pairs of GPUs reach each other's memory", report.reached, report.gpus * (report.gpus - 1));
    findings.push_back({well ? Level::green : Level::yellow, "GPU peers", well ? text : report.problem,
                        well ? ""
                             : fmt::format("an IOMMU or PCIe ACS blocks these accesses; train runs NCCL with {}, and other programs hang "
                                           "unless they set it",
                                           report.links_work ? "NCCL_P2P_LEVEL=NVL" : "NCCL_P2P_DISABLE=1")});
  }
  const std::string problem = parallel::nccl_problem();
  findings.push_back({problem.empty() ? Level::green : Level::yellow, "NCCL", problem.empty() ? parallel::nccl_version() : "none",
                      problem.empty() ? "" : "GPUs of several ranks exchange data through host memory; " + problem});
  return findings;
}

std::vector<Finding> look_at_cluster(const Host& host) {
  const Launcher launcher = detect_launcher(host);
  std::vector<Finding> findings;
  const std::string who = launcher.name.empty() ? "none" : fmt::format("{}, rank {} of {}", launcher.name, launcher.rank, launcher.ranks);
  findings.push_back({Level::green, "launcher", who, ""});
  const auto job = host.env("SLURM_JOB_ID");
  if (!job) return findings;
  const auto scratch = host.env("SLURM_TMPDIR");
  const bool bare = launcher.bare_slurm_tasks > 1;
  findings.push_back({bare      ? Level::red
                      : scratch ? Level::green
                                : Level::yellow,
                      "Slurm", fmt::format("job {}, scratch {}", *job, scratch.value_or("not set")),
                      bare ? fmt::format("the job has {} tasks, but srun did not start this program: use srun", launcher.bare_slurm_tasks)
                      : scratch ? ""
                                : "$SLURM_TMPDIR is not set: give --nvme PATH to use nvme"});
  return findings;
}

}  // namespace spillway::app
