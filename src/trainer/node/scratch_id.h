// Defines the names of the folders that the ranks of a run have on a scratch path. A restarted run recognises by name the folders that dead
// processes of the run left behind, even if the run then had another number of ranks. The functions write nothing, and read nothing but the
// scratch path.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "offload/scratch_folder.h"

namespace spillway::trainer {

/// Returns the id of the run whose folder is `out`: 8 hex digits that are part of the names of its scratch folders.
std::string scratch_run_id(const std::filesystem::path& out);

/// ScratchId identifies the scratch folder of one rank of a run.
struct ScratchId {
  std::string run_id;
  int rank = 0, ranks = 1;

  /// Returns the name of the scratch folder of rank `any_rank` of this run, as offload::ScratchFolder expects it.
  std::string of(int any_rank) const { return run_id + (ranks > 1 ? "-rank" + std::to_string(any_rank) : ""); }
  std::string mine() const { return of(rank); }
  /// Returns whether `folder` is the name of the scratch folder of one of the current ranks.
  bool has(const std::string& folder) const;

  /// Returns the folders that dead processes of this run left on `path` and that no current rank will
  /// reuse: folders of ranks that no longer exist, and folders that an earlier run renamed to keep them.
  std::vector<offload::Orphan> of_others(const std::filesystem::path& path) const;
  /// Returns all folders that dead processes of this run left on `path`.
  std::vector<offload::Orphan> all_left_behind(const std::filesystem::path& path) const;
  /// Returns the bytes in the folders on `path` that dead processes of this run left and that the current ranks will reuse.
  i64 bytes_left_behind(const std::filesystem::path& path) const;
};

}  // namespace spillway::trainer
