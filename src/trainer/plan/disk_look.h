// Finds the current rates of the scratch paths, from which a plan's times follow. Each path is probed for a moment; the probe writes and
// removes a nameless file (disk_probe.h). If the control group limits the disk, the limit is taken instead, since a short probe would see
// only a burst. If the path is only planned with and will not be used, the figures of `spillway bench` are taken, or constants. One thread
// calls.
#pragma once
#include "trainer/node/calibration.h"
#include "trainer/node/disk_probe.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

struct DiskLook {
  std::vector<DiskRates> disks;  // one per path; DiskRates::path is empty if the rates are constants
  std::string doubts;            // text "; …" for each path whose disk is limited, and for each path whose rates are constants
};

/// Throws Error(io) if the requested I/O engine is refused.
DiskLook look_at_disks(const std::vector<ScratchPath>& paths, offload::IoEngineKind kind, const Calibration& calibration,
                       const Host& host = {}, const ProbeSize& size = {});

}  // namespace spillway::trainer
