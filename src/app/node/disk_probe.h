// What a scratch path gives a run that streams its state through it: reads and writes of 1 MiB at once, as many in flight as the staging
// ring has, until the rate is steady, while the cores compute as they will beside them. For a disk that bench did not see, or saw in
// another mood. Moves a nameless file on the nearest folder that is there. One thread calls.
#pragma once
#include <optional>

#include "app/node/calibration.h"
#include "offload/io_engine.h"

namespace spillway::app {

struct ProbeSize {
  i64 file_bytes = 0;  // 64 MiB to 512 MiB of it are used: no more than what the run itself would move
  int threads = 1;     // that compute meanwhile
};

/// Writes at most five times the file's bytes (2.5 GiB) and takes at most two seconds on a drive that writes 0.5 GB/s or more. Empty where
/// nothing can be written or there is no room.
std::optional<DiskRates> probe_disk(const std::filesystem::path& path, offload::IoEngine& engine, const ProbeSize& size = {});

}  // namespace spillway::app
