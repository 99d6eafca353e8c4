// Implements `spillway bench`, which measures this node, prints a table, and caches the figures for plan and train. entry.cc
// starts several ranks, which measure the exchange of data between them. The first rank then measures everything else alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/commands/bench.h"
#include "app/commands/commands.h"
#include "base/error.h"
#include "base/units.h"
#include "device/device_query.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "kernels/products/gpu_libraries.h"
#include "offload/scratch_path.h"
#include "trainer/node/grant.h"
#include "trainer/ranks/join.h"
#include "trainer/ranks/peers.h"

namespace spillway::app {
namespace {

constexpr double kMeeting_s = 60;

std::string shown(double value, const std::string& unit) {
  if (unit.starts_with("ns/")) return fmt::format("{:.3f} {}", value, unit);
  return value < 999.5e6 ? fmt::format("{:.0f} M{}", value / 1e6, unit == "bytes/s" ? "B/s" : unit)
                         : fmt::format("{:.1f} G{}", value / 1e9, unit == "bytes/s" ? "B/s" : unit);
}

std::string table(const std::vector<BenchRow>& rows) {
  std::string text = fmt::format("{:<27}{:>19}{:>19}{:>8}{:>7}\n", "name", "value", "ceiling", "share", "spread");
  for (const BenchRow& row : rows) {
    text += fmt::format("{:<27}{:>19}{:>19}{:>8}{:>7}{}{}\n", row.name, shown(row.value, row.unit),
                        row.ceiling ? shown(*row.ceiling, row.unit) : "-", row.share() ? fmt::format("{:.0f} %", 100 * *row.share()) : "-",
                        row.spread > 0 ? fmt::format("{:.0f} %", 100 * row.spread) : "-", row.busy ? "  busy" : "",
                        row.path.empty() ? "" : "  " + row.path);
  }
  return text;
}

// Returns the scratch paths to measure. If there is no path, the disk is not measured; if `disk` was requested by name, this is an error
// and the function throws.
std::vector<ScratchPath> paths(const BenchConfig& config, const Host& host) {
  std::vector<ScratchPath> all = config.nvme;
  if (const auto scratch = host.env("SLURM_TMPDIR"); all.empty() && scratch) all.push_back({*scratch, std::nullopt});
  if (!all.empty()) return all;
  if (!config.what.empty())
    throw Error(ErrorCode::usage, "[bench] expected --nvme PATH to measure disk, got none, and $SLURM_TMPDIR is not set");
  return {};
}

// Returns the first usable GPU, or nothing if there is none. Throws Error(usage) if there is none and only `link`, which needs a GPU, was
// requested.
std::optional<Device> gpu_to_measure(const BenchConfig& config, Console& console) {
  const GpuReport report = query_gpus();
  for (const GpuFacts& gpu : report.gpus) {
    if (gpu.problem.empty() && kernels::missing_gpu_library().empty()) return Device::cuda(gpu.index);
  }
  const std::string why = report.gpus.empty() ? report.problem : report.gpus[0].problem + kernels::missing_gpu_library();
  if (config.what == std::vector<std::string>{"link"})
    throw Error(ErrorCode::usage,
                fmt::format("[bench] expected a GPU to measure link, the copies between host and GPU memory, got none: {}", why));
  if (config.wants("link")) console.log("link: not measured, because there is no GPU: " + why);
  return {};
}

void add(std::vector<BenchRow>& rows, std::vector<BenchRow> more) { std::ranges::move(more, std::back_inserter(rows)); }

// Measures with `measure` and marks the rows if the machine was busy meanwhile.
std::vector<BenchRow> watched(const CpuClock& clock, const std::function<std::vector<BenchRow>()>& measure) {
  const BusyWatch watch(clock);
  std::vector<BenchRow> rows = measure();
  const Contention contention = watch.so_far();
  for (BenchRow& row : rows) {
    if (contention.busy()) row.busy = contention.obtained;
  }
  return rows;
}

// Says which rows were measured on a busy machine.
void warn_of_busy(const std::vector<BenchRow>& rows, Console& console) {
  double least = 1;
  std::vector<std::string> names;
  for (const BenchRow& row : rows) {
    if (row.busy) names.push_back(row.name), least = std::min(least, *row.busy);
  }
  if (names.empty()) return;
  console.warn(
      fmt::format("the machine was busy: {}; not saved, and figures that were saved before still count: {}; measure again when the "
                  "machine is idle",
                  Contention{.obtained = least, .others = 1}.text(), fmt::join(names, ", ")));
}

std::vector<BenchRow> measure_disks(const BenchConfig& config, const BenchSize& size, const std::vector<ScratchPath>& disks,
                                    const CpuClock& clock, Console& console) {
  std::vector<BenchRow> rows;
  if (config.wants("disk") && disks.empty())
    console.log("disk: not measured, because there is no --nvme PATH and $SLURM_TMPDIR is not set");
  if (disks.empty()) return rows;
  const offload::ChosenEngine engine = offload::make_io_engine(config.io_engine);
  console.log("disk: " + engine.why);
  for (const ScratchPath& path : disks) {
    const offload::ScratchInfo info = offload::prepare_scratch(path.path, true);
    if (!info.direct)
      console.warn(
          fmt::format("{} has no O_DIRECT ({}): the rates are those of the page cache, not of the disk", path.path, info.filesystem.name));
    console.progress("bench: disk " + path.path);
    add(rows, watched(clock, [&] { return bench_disk(size, path, *engine.engine); }));
  }
  return rows;
}

// Returns the measured rows on the first rank, and an empty list on all others.
std::vector<BenchRow> measure_communicator(const BenchSize& size, const Launcher& launcher, Console& console, const Host& host) {
  const Peers peers(join_ranks(launcher, kMeeting_s, "auto", host));
  if (peers.first()) console.progress(fmt::format("bench: communicator, {} ranks", peers.ranks()));
  std::vector<BenchRow> rows;
  peers.together([&] { rows = bench_communicator(size, *peers.communicator()); });
  return peers.first() ? rows : std::vector<BenchRow>();
}

}  // namespace

int run_bench(const BenchConfig& config, Console& console, const Host& host, CpuClock clock) {
  if (!clock) clock = [&] { return cpu_sample(host); };
  const std::vector<ScratchPath> disks = config.wants("disk") ? paths(config, host) : std::vector<ScratchPath>();
  const i64 granted = memory_grant(host).bytes;
  const BenchSize size = fitting({}, granted);
  std::vector<BenchRow> rows;
  if (const Launcher launcher = detect_launcher(host); config.wants("communicator")) {
    rows = watched(clock, [&] { return measure_communicator(size, launcher, console, host); });
    if (launcher.rank > 0) return 0;
  }
  ThreadPool threads(static_cast<int>(config.threads.value_or(core_grant(host).threads)));
  MemoryPool pool("bench", granted, "free memory on this node");
  const Stream stream{Device::cpu(), &threads, &pool};
  const StreamScope scope(stream);
  const std::pair<const char*, std::vector<BenchRow> (*)(const BenchSize&)> loops[] = {
      {"memory", bench_memory}, {"matmul", bench_matmul}, {"cpu-adam", bench_adam}};
  for (const auto& [name, measure] : loops) {
    if (!config.wants(name)) continue;
    console.progress(fmt::format("bench: {}, {} thread{}", name, threads.threads(), threads.threads() == 1 ? "" : "s"));
    add(rows, watched(clock, [&, measure = measure] { return measure(size); }));
  }
  const bool of_gpu = config.wants("memory") || config.wants("matmul") || config.wants("link");
  if (const auto gpu = of_gpu ? gpu_to_measure(config, console) : std::nullopt) {
    const std::pair<const char*, std::vector<BenchRow> (*)(const BenchSize&, Device)> on_gpu[] = {
        {"memory", bench_gpu_memory}, {"matmul", bench_gpu_matmul}, {"link", bench_link}};
    for (const auto& [name, measure] : on_gpu) {
      if (!config.wants(name)) continue;
      console.progress(fmt::format("bench: {}, {}", name, to_string(*gpu)));
      add(rows, watched(clock, [&, measure = measure] { return measure(size, *gpu); }));
    }
  }
  add(rows, measure_disks(config, size, disks, clock, console));
  console.result([&] { return bench_json(rows); }, [&] { return table(rows); });
  warn_of_busy(rows, console);
  for (const std::string& line : far_from_kept(rows, host)) console.warn(line);
  if (std::ranges::all_of(rows, [](const BenchRow& row) { return row.busy.has_value(); })) return 0;
  try {
    save_bench_rows(rows, host);
    console.log("saved to " + calibration_file(host).string() + " for plan and train");
  } catch (const Error& error) {
    console.warn(error.what());
  }
  return 0;
}

}  // namespace spillway::app
