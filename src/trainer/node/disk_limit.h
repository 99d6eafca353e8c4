// Limits that the control group (v1 blkio, v2 io) sets on a disk's speed. They are applied to measured speeds, because the limit may have
// been another one, or none, when bench measured. Except for disk_of(), only the Host is read. Thread-safe.
#pragma once
#include <optional>

#include "trainer/node/calibration.h"
#include "trainer/node/host.h"

namespace spillway::trainer {

struct DiskLimit {
  std::optional<double> read_bytes_per_s, write_bytes_per_s;
};
/// Returns the tightest limits for the disk "major:minor" among this process's group and its ancestors.
DiskLimit cgroup_disk(const Host& host, const std::string& device);

/// Returns the device number "major:minor" of the disk on which `path` lies, such as "8:0". Empty if it is unknown.
std::string disk_of(const std::filesystem::path& path);

/// Returns `rates` reduced to the limit where they exceed it.
DiskRates limited(const DiskRates& rates, const DiskLimit& limit);

}  // namespace spillway::trainer
