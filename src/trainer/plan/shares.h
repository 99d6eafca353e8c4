// Decides how much of the nvme tier each --nvme path takes: small whole numbers in proportion to the path's bytes per second, so that all
// paths finish at the same time. A restart keeps the shares of the files it finds. Functions without state.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/node/calibration.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

struct Shares {
  std::vector<u32> weights;  // one per path
  std::string why;           // for the log: "bench measured 1.52, 0.51 GB/s"
  bool to_measure = false;   // the paths' rates are unknown: the weights are equal until they are measured

  std::string text() const;  // "shares 3:1 (bench measured 1.52, 0.51 GB/s)"; empty for one path
};

/// Returns the smallest whole numbers that match every rate to within 10 %. The fastest path has at most 64, and the slowest at least 1.
std::vector<u32> weights_of(const std::vector<double>& bytes_per_s);

/// Finds the shares without measuring a drive. If a dead run with this id left files, the shares are those of the files. Else, if `spillway
/// bench` measured all paths, they follow from its figures. Else they are equal. If the paths are on several filesystems, equal shares hold
/// only until the paths are measured.
Shares known_shares(const std::vector<ScratchPath>& paths, const std::string& run_id, const Calibration& calibration);

/// Returns whether all paths are on one filesystem. A path that does not exist yet counts as its parent's.
bool on_one_filesystem(const std::vector<ScratchPath>& paths);

/// Returns shares in proportion to each path's rate of mixed reads and writes. `who` says in the log who measured them, as in "bench
/// measured".
Shares shares_by(const std::vector<DiskRates>& disks, const std::string& who);

/// Returns the bytes that striping with these weights can use if the paths have this much room.
i64 striped_room(const std::vector<u32>& weights, const std::vector<i64>& room_bytes);
/// Returns the rate of all paths together. The path that takes longest to move its share decides.
double striped_rate(const std::vector<u32>& weights, const std::vector<DiskRates>& disks, double DiskRates::*rate);
/// Returns the total bytes as a multiple of the bytes on the path with the largest share. For the wear, the paths together count as so many
/// drives.
double drives_worth(const std::vector<u32>& weights);

}  // namespace spillway::trainer
