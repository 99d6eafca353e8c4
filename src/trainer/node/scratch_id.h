// Defines the names of the folders that the ranks of a run have on a scratch path. By these names a restarted run finds the folders that
// dead processes of the run left behind, even if the run had another number of ranks. These are values; only the scratch path is read.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "offload/scratch_folder.h"

namespace spillway::trainer {

/// Returns the id of the run whose folder is `out`: 8 hex digits that are part of the names of its scratch folders.
std::string scratch_run_id(const std::filesystem::path& out);

/// Identifies the scratch folder of one rank.
struct ScratchId {
  std::string run_id;
  int rank = 0, ranks = 1;

  /// Returns the name that offload::ScratchFolder takes for rank `any_rank` of this run.
  std::string of(int any_rank) const { return run_id + (ranks > 1 ? "-rank" + std::to_string(any_rank) : ""); }
  std::string mine() const { return of(rank); }
  /// Returns whether `folder` is the name of a folder of one of the current ranks.
  bool has(const std::string& folder) const;

  /// Returns the folders that dead processes of this run left on `path` and that no current rank takes over: folders of other ranks, and
  /// those that were set aside.
  std::vector<offload::Orphan> of_others(const std::filesystem::path& path) const;
  /// Returns all folders that dead processes of this run left on `path`.
  std::vector<offload::Orphan> all_left_behind(const std::filesystem::path& path) const;
  /// Returns the bytes in the folders on `path` that dead processes left and that the current ranks take over.
  i64 bytes_left_behind(const std::filesystem::path& path) const;
};

}  // namespace spillway::trainer
