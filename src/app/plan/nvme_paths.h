// The paths of the nvme tier: how much of each a rank may plan with, and which share of the tier's bytes each takes. Found by looking at
// the filesystems and at what a dead run left there; nothing stays, and for a plan alone nothing is written. A value.
#pragma once
#include "app/node/scratch_id.h"
#include "app/plan/shares.h"

namespace spillway::app {

struct NvmePaths {
  std::vector<ScratchPath> paths;  // --nvme, or the batch system's; empty: there is no such tier
  std::vector<i64> room_bytes;     // of each, for one rank
  Shares shares;
  bool is_memory = false;  // of one of them at least: its bytes come out of the host's

  /// That the tier may take.
  i64 tier_bytes() const { return striped_room(shares.weights, room_bytes); }
  /// What open files of so many bytes, on all paths and of all ranks here, will still take of the filesystem under `folder`: of what a dead
  /// run left there they are made.
  i64 bytes_beside(const std::string& folder, i64 all_bytes, const ScratchId& id) const;
  /// Shares by `disks`, one a path, where they wait for that and all were measured. Whether it was so.
  bool take_measured(const std::vector<DiskRates>& disks);
};

/// Of a rank that is one of `local_ranks` on this node. Errors: Error(usage) for a path that is no scratch folder, or on a network
/// filesystem without consent.
NvmePaths find_nvme_paths(const ResourceConfig& config, const ScratchId& id, int local_ranks, const Host& host = {});

}  // namespace spillway::app
