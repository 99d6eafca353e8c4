// Describes the paths of the nvme tier: how many bytes a rank may use on each path, and which share of the tier's bytes each path takes.
// These numbers follow from the filesystems and from the files that a dead run left there. Finding the paths leaves no file behind, and if
// only a plan is made, it writes nothing at all.
#pragma once
#include "trainer/node/scratch_id.h"
#include "trainer/plan/shares.h"

namespace spillway::trainer {

struct NvmePaths {
  std::vector<ScratchPath> paths;  // paths from --nvme or the batch system; empty if there is no nvme tier
  std::vector<i64> room_bytes;     // bytes that one rank may use on each path
  Shares shares;
  bool is_memory = false;  // true if at least one path is a tmpfs, so that the tier's bytes take host memory

  /// Returns the bytes that the nvme tier may take.
  i64 tier_bytes() const { return striped_room(shares.weights, room_bytes); }
  /// Returns how many bytes of free space the filesystem that holds `folder` loses when the nvme files are created. `all_bytes` is the size
  /// of the nvme files on all paths and of all ranks of this node. Files that a dead run left on that filesystem are reused and do not
  /// count.
  i64 bytes_beside(const std::string& folder, i64 all_bytes, const ScratchId& id) const;
  /// Sets the shares of the paths by the measured rates `disks`, one per path, if the
  /// shares are undecided and all paths were measured. Returns whether the shares were set.
  bool take_measured(const std::vector<DiskRates>& disks);
};

/// Finds the nvme paths for a rank that is one of `local_ranks` on this node. Throws Error(usage) for a
/// path that cannot be a scratch folder, or that is on a network filesystem without --allow-network-nvme.
NvmePaths find_nvme_paths(const ResourceConfig& config, const ScratchId& id, int local_ranks, const Host& host = {});

}  // namespace spillway::trainer
