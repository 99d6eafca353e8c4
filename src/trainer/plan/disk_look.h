// Finds the current rates of the scratch paths, from which a plan's times follow. Each path is probed for a
// moment; the probe writes and removes an unnamed file (disk_probe.h). If the control group limits the disk,
// the limit is used instead, since a short probe would see only a burst. For a path that is only planned
// with and will not be used, the figures of `spillway bench` or constants are used. For use by one thread.
#pragma once
#include "trainer/node/busy.h"
#include "trainer/node/calibration.h"
#include "trainer/node/disk_probe.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

struct DiskLook {
  std::vector<DiskRates> disks;  // one per path; DiskRates::path is empty if the rates are assumed constants
  std::string doubts;            // one text that begins with "; " for each path whose disk is limited or whose rates are assumed constants
};

/// Returns the rates of all `paths`. A path that is probed while the machine is busy keeps the figures of bench, if there are any. Throws
/// Error(io) if the system refuses the requested I/O engine.
DiskLook look_at_disks(const std::vector<ScratchPath>& paths, offload::IoEngineKind kind, const Calibration& calibration,
                       const Host& host = {}, const ProbeSize& size = {}, const CpuClock& clock = cpu_sample_here);

}  // namespace spillway::trainer
