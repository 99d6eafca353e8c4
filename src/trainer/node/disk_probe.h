// Measures how fast a run can stream its state through a scratch path. Reads and writes of 1 MiB run at once until the rate is steady, as
// many in flight as the optimizer's staging buffers allow, while the cores compute as in the run. probe_disk() serves disks that `spillway
// bench` has not measured, or has measured under other conditions. It uses an unnamed file in the nearest existing folder. For use by one
// thread.
#pragma once
#include <optional>

#include "offload/io_engine.h"
#include "trainer/node/calibration.h"

namespace spillway::trainer {

struct ProbeSize {
  i64 file_bytes = 0;  // bytes that the run will move; the test file has this size, within 64 MiB to 512 MiB
  int threads = 1;     // number of threads that compute during the measurement
};

/// Measures the disk under `path`. Writes at most five times the test file's bytes (2.5 GiB) and takes at most two
/// seconds on a drive that writes 0.5 GB/s or more. Returns nothing if `path` cannot be written or has no room.
std::optional<DiskRates> probe_disk(const std::filesystem::path& path, offload::IoEngine& engine, const ProbeSize& size = {});

}  // namespace spillway::trainer
