// What the control group (v1 blkio, v2 io) leaves of a disk's speed: bench may have measured it under no limit, or another one. Reads the
// Host alone. Thread-safe.
#pragma once
#include <optional>

#include "app/node/calibration.h"
#include "app/node/host.h"

namespace spillway::app {

struct DiskLimit {
  std::optional<double> read_bytes_per_s, write_bytes_per_s;
};
/// The tightest of this process's group and those above it, for the disk "major:minor".
DiskLimit cgroup_disk(const Host& host, const std::string& device);

/// The disk under `path`: "8:0". Empty when nothing is known of it.
std::string disk_of(const std::filesystem::path& path);

/// `rates`, no faster than the limit.
DiskRates limited(const DiskRates& rates, const DiskLimit& limit);

}  // namespace spillway::app
