#include "trainer/plan/disk_look.h"

#include <fmt/format.h>

#include "trainer/node/disk_limit.h"

namespace spillway::trainer {
namespace {

DiskRates rates_of(const ScratchPath& scratch, offload::IoEngine& engine, const Calibration& calibration, const Host& host,
                   const ProbeSize& size, const CpuClock& clock, std::string& doubts) {
  const std::string& path = scratch.path;
  if (scratch.look == ScratchPath::Look::elsewhere) return {};
  const DiskRates known = calibration.disk(path);
  const DiskLimit limit = cgroup_disk(host, disk_of(path));
  if (limit.read_bytes_per_s || limit.write_bytes_per_s) {
    const DiskRates under = limited(known, limit);
    doubts += fmt::format("; the control group limits {} to {:.2f} GB/s for reads and {:.2f} GB/s for writes", path,
                          under.read_bytes_per_s / 1e9, under.write_bytes_per_s / 1e9);
    return under;
  }
  if (scratch.look == ScratchPath::Look::thorough) {
    const BusyWatch watch(clock);
    const auto now = probe_disk(path, engine, size);
    const Contention contention = watch.so_far();
    if (now && contention.busy())
      doubts += fmt::format("; the machine was busy while {} was measured{}: {}", path,
                            known.path.empty() ? ", so its rates may be too low" : ", so its rates are those of bench", contention.text());
    if (now && (known.path.empty() || !contention.busy())) return *now;
  }
  if (known.path.empty())
    doubts += fmt::format("; the rates of {} are assumed constants until `spillway bench disk --nvme {}` has measured them", path, path);
  return known;
}

}  // namespace

DiskLook look_at_disks(const std::vector<ScratchPath>& paths, offload::IoEngineKind kind, const Calibration& calibration, const Host& host,
                       const ProbeSize& size, const CpuClock& clock) {
  DiskLook look;
  const offload::ChosenEngine engine = offload::make_io_engine(kind);
  for (const ScratchPath& path : paths) look.disks.push_back(rates_of(path, *engine.engine, calibration, host, size, clock, look.doubts));
  return look;
}

}  // namespace spillway::trainer
