// Decides how much of the nvme tier each --nvme path takes. The shares are small whole numbers in proportion to the paths' bytes per
// second, so that all paths finish at the same time. A restart keeps the shares of the files that it finds. The functions have no state.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/node/calibration.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

struct Shares {
  std::vector<u32> weights;  // share of each path, as a whole number
  std::string why;           // the reason for these shares, for the log, such as "bench measured 1.52, 0.51 GB/s"
  bool to_measure = false;   // true if the paths' rates are unknown: the weights are equal until they are measured

  std::string text() const;  // returns a text such as "shares 3:1 (bench measured 1.52, 0.51 GB/s)"; empty for one path
};

/// Returns the smallest whole numbers that match every rate to within 10 %. The largest number is at most 64, the smallest at least 1.
std::vector<u32> weights_of(const std::vector<double>& bytes_per_s);

/// Finds the shares without measuring a drive. If a dead run with this id left files, the files give the shares.
/// If it did not and `spillway bench` has measured all paths, its figures give the shares. In all other cases
/// the shares are equal; if the paths are then on several filesystems, this holds only until they are measured.
Shares known_shares(const std::vector<ScratchPath>& paths, const std::string& run_id, const Calibration& calibration);

/// Returns whether all paths are on one filesystem. A path that does not exist yet counts as lying on the filesystem of its parent.
bool on_one_filesystem(const std::vector<ScratchPath>& paths);

/// Returns shares in proportion to each path's rate of mixed reads and
/// writes. `who` begins the reason for the log, as in "bench measured".
Shares shares_by(const std::vector<DiskRates>& disks, const std::string& who);

/// Returns the bytes that striping with these weights can use if the paths have `room_bytes` of free space.
i64 striped_room(const std::vector<u32>& weights, const std::vector<i64>& room_bytes);
/// Returns the rate of all paths together, which is limited by the path that takes longest to move its share.
double striped_rate(const std::vector<u32>& weights, const std::vector<DiskRates>& disks, double DiskRates::*rate);
/// Returns the total bytes as a multiple of the bytes on the path with the largest
/// share. This is the number of drives by which the wear of the paths is divided.
double drives_worth(const std::vector<u32>& weights);

}  // namespace spillway::trainer
