// The paths of the nvme tier: how many bytes of each a rank may plan with, and which share of the tier's bytes each takes. They are found
// by looking at the filesystems and at the files of a dead run. No file stays behind, and nothing is written if only a plan is made. A
// value.
#pragma once
#include "app/node/scratch_id.h"
#include "app/plan/shares.h"

namespace spillway::app {

struct NvmePaths {
  std::vector<ScratchPath> paths;  // from --nvme or the batch system; empty if there is no nvme tier
  std::vector<i64> room_bytes;     // room on each path, for one rank
  Shares shares;
  bool is_memory = false;  // at least one path is memory (tmpfs), so its bytes come out of the host's

  /// Returns the bytes that the tier may take.
  i64 tier_bytes() const { return striped_room(shares.weights, room_bytes); }
  /// Returns how many more bytes the filesystem under `folder` loses when files of `all_bytes`, for all paths and all ranks of this node,
  /// are opened. Files that a dead run left there are reused and do not count.
  i64 bytes_beside(const std::string& folder, i64 all_bytes, const ScratchId& id) const;
  /// Sets the shares by the measured rates `disks`, one per path, if they are still open and all paths were measured. Returns whether it
  /// did.
  bool take_measured(const std::vector<DiskRates>& disks);
};

/// Finds the paths for a rank that is one of `local_ranks` on this node. Throws Error(usage) for a path that is no scratch folder, or that
/// is on a network filesystem without consent (--allow-network-nvme).
NvmePaths find_nvme_paths(const ResourceConfig& config, const ScratchId& id, int local_ranks, const Host& host = {});

}  // namespace spillway::app
