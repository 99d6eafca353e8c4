// Finds the current rates of the scratch paths, from which a plan's times follow. Each path is probed for a moment, unless the control
// group limits its disk: then the limit counts, since a short probe would see only a burst. A probe writes and removes a nameless file
// (disk_probe.h). A path that is only planned with is not probed: there the figures of bench count, or constants. One thread calls.
#pragma once
#include "app/flags/config.h"
#include "app/node/calibration.h"
#include "app/node/disk_probe.h"

namespace spillway::app {

struct DiskLook {
  std::vector<DiskRates> disks;  // one per path; an empty DiskRates::path marks constants
  std::string doubts;            // "; …" for each path that was neither simply probed nor measured by bench
};

/// Throws Error(io) if the requested I/O engine is refused.
DiskLook look_at_disks(const std::vector<ScratchPath>& paths, offload::IoEngineKind kind, const Calibration& calibration,
                       const Host& host = {}, const ProbeSize& size = {});

}  // namespace spillway::app
