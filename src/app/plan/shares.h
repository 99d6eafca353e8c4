// How much of the nvme tier each --nvme path takes: small whole numbers in proportion to the bytes a second it moves, so that all paths
// are done at the same time. A restart keeps the shares of the files it finds. Functions without state.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "app/flags/config.h"
#include "app/node/calibration.h"

namespace spillway::app {

struct Shares {
  std::vector<u32> weights;  // of each path
  std::string why;           // for the log: "bench measured 1.52, 0.51 GB/s"
  bool to_measure = false;   // nothing is known yet: equal until measured

  std::string text() const;  // "shares 3:1 (bench measured 1.52, 0.51 GB/s)"; empty for one path
};

/// The smallest whole numbers that meet every rate to a tenth; the slowest path gets at least 1 where the fastest has 64.
std::vector<u32> weights_of(const std::vector<double>& bytes_per_s);

/// Without touching a drive: as the files of a dead run of this id have them; by bench's figures when it measured all of them; equal on
/// one filesystem; else equal until measured.
Shares known_shares(const std::vector<ScratchPath>& paths, const std::string& run_id, const Calibration& calibration);

/// Those that are still to be made lie where their parent does.
bool on_one_filesystem(const std::vector<ScratchPath>& paths);

/// In proportion to what each moves of mixed reads and writes; `who` "measured" it.
Shares shares_by(const std::vector<DiskRates>& disks, const std::string& who);

/// Bytes that striping with these weights can use when each path has so much room.
i64 striped_room(const std::vector<u32>& weights, const std::vector<i64>& room_bytes);
/// Of all paths together: the path that is slowest for its share decides.
double striped_rate(const std::vector<u32>& weights, const std::vector<DiskRates>& disks, double DiskRates::*rate);
/// How many times the bytes on the path with the largest share are there: as many drives wear like that one.
double drives_worth(const std::vector<u32>& weights);

}  // namespace spillway::app
