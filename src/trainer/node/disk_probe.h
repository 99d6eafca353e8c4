// Measures how fast a run can stream its state through a scratch path. Reads and writes of 1 MiB run at once, with as many in flight as the
// staging ring has, until the rate is steady, while the cores compute as they will in the run. It is used for disks that bench did not
// measure, or measured under other conditions. An unnamed file in the nearest existing folder is used. For use by one thread.
#pragma once
#include <optional>

#include "offload/io_engine.h"
#include "trainer/node/calibration.h"

namespace spillway::trainer {

struct ProbeSize {
  i64 file_bytes = 0;  // bytes that the run itself would move; the test file has this size, but 64 MiB to 512 MiB
  int threads = 1;     // number of threads that compute meanwhile
};

/// Measures the disk under `path`. Writes at most five times the file's bytes (2.5 GiB) and takes at most two seconds on a drive that
/// writes 0.5 GB/s or more. Returns nothing if the path cannot be written or has no room.
std::optional<DiskRates> probe_disk(const std::filesystem::path& path, offload::IoEngine& engine, const ProbeSize& size = {});

}  // namespace spillway::trainer
