// How much of the nvme tier each --nvme path takes: small whole numbers in proportion to the bytes a second it moves, so that all paths
// are done at the same time. A restart keeps the shares of the files it finds. Functions without state.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "app/calibration.h"
#include "app/config.h"
#include "offload/io_engine.h"

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
/// one filesystem; else equal, to be measured.
Shares known_shares(const std::vector<ScratchPath>& paths, const std::string& run_id, const Calibration& calibration);

/// Reads and writes a nameless file in each path, in turn, for a fraction of a second each at an ordinary drive's speed. Equal where there
/// is no room for that. Errors: Error(io).
Shares measured_shares(const std::vector<ScratchPath>& paths, offload::IoEngine& engine);

/// Bytes that striping with these weights can use when each path has so much room.
i64 striped_room(const std::vector<u32>& weights, const std::vector<i64>& room_bytes);

}  // namespace spillway::app
