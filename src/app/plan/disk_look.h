// What the scratch paths give right now, for the plan's times: a probe of each, or where the control group limits a disk, what is set: a
// probe is too short to see a limit's mean and would see its bursts. Writes and removes a nameless file (disk_probe.h), but not where the
// path is only to be planned with: there what bench found, or constants. One thread calls.
#pragma once
#include "app/flags/config.h"
#include "app/node/calibration.h"
#include "app/node/disk_probe.h"

namespace spillway::app {

struct DiskLook {
  std::vector<DiskRates> disks;  // one a path; path empty: constants, nothing was measured
  std::string doubts;            // "; …" for each path that was neither simply probed nor known to bench
};

/// Error(io) where the I/O engine demanded is refused.
DiskLook look_at_disks(const std::vector<ScratchPath>& paths, offload::IoEngineKind kind, const Calibration& calibration,
                       const Host& host = {}, const ProbeSize& size = {});

}  // namespace spillway::app
