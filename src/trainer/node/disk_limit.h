// Reads the limits that the control group (v1 blkio, v2 io) sets on a disk's speed. They are applied to measured speeds, because the limit
// may have been a different one, or none, when `spillway bench` measured. All functions but disk_of() read the machine only through the
// parameter `host`. Thread-safe.
#pragma once
#include <optional>

#include "trainer/node/calibration.h"
#include "trainer/node/host.h"

namespace spillway::trainer {

struct DiskLimit {
  std::optional<double> read_bytes_per_s, write_bytes_per_s;
};
/// Returns the tightest limits that this process's control group or an ancestor sets for the disk "major:minor".
DiskLimit cgroup_disk(const Host& host, const std::string& device);

/// Returns the device number "major:minor" of the disk that holds `path`, such as "8:0". The result is empty if the number is unknown.
std::string disk_of(const std::filesystem::path& path);

/// Returns `rates`, with every rate that exceeds its limit reduced to the limit.
DiskRates limited(const DiskRates& rates, const DiskLimit& limit);

}  // namespace spillway::trainer
