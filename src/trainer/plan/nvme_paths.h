// Describes the paths of the nvme tier: how many bytes a rank may use on each path, and which share of the tier's bytes each path takes.
// Both follow from the filesystems and from the files that a dead run left. Finding them leaves no file behind, and writes nothing at all
// if only a plan is made.
#pragma once
#include "trainer/node/scratch_id.h"
#include "trainer/plan/shares.h"

namespace spillway::trainer {

struct NvmePaths {
  std::vector<ScratchPath> paths;  // from --nvme or the batch system; empty if there is no nvme tier
  std::vector<i64> room_bytes;     // room on each path, for one rank
  Shares shares;
  bool is_memory = false;  // at least one path is a tmpfs, so the tier's bytes take host memory

  /// Returns the bytes that the tier may take.
  i64 tier_bytes() const { return striped_room(shares.weights, room_bytes); }
  /// Returns how many bytes of free space the filesystem that holds `folder` loses when the nvme files are created. `all_bytes` is the size
  /// of these files on all paths and of all ranks of this node. Files that a dead run left there are reused and do not count.
  i64 bytes_beside(const std::string& folder, i64 all_bytes, const ScratchId& id) const;
  /// `disks` are the measured rates, one per path. If the shares are still undecided and all paths were measured, sets the shares by these
  /// rates and returns true; else returns false.
  bool take_measured(const std::vector<DiskRates>& disks);
};

/// Finds the paths for a rank that is one of `local_ranks` on this node. Throws Error(usage) for a path that is no scratch folder, or that
/// is on a network filesystem without consent (--allow-network-nvme).
NvmePaths find_nvme_paths(const ResourceConfig& config, const ScratchId& id, int local_ranks, const Host& host = {});

}  // namespace spillway::trainer
