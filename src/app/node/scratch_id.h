// How the ranks of a run call their folders on a scratch path. By these names a restart finds what a dead process of the run left, even one
// that had another number of ranks. Values; reads the path alone.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "offload/scratch_folder.h"

namespace spillway::app {

/// Of the run whose folder is `out`: what its folders on scratch paths are called by.
std::string scratch_run_id(const std::filesystem::path& out);

/// Of one rank.
struct ScratchId {
  std::string run_id;
  int rank = 0, ranks = 1;

  /// What offload::ScratchFolder takes.
  std::string of(int any_rank) const { return run_id + (ranks > 1 ? "-rank" + std::to_string(any_rank) : ""); }
  std::string mine() const { return of(rank); }
  /// Of a folder's name: it is a present rank's.
  bool has(const std::string& folder) const;

  /// What dead processes of this run left on `path` that none of the present ranks takes over: of other ranks, and what was set aside.
  std::vector<offload::Orphan> of_others(const std::filesystem::path& path) const;
  /// All that dead processes of this run left on `path`.
  std::vector<offload::Orphan> all_left_behind(const std::filesystem::path& path) const;
  /// In the folders that the present ranks take over.
  i64 bytes_left_behind(const std::filesystem::path& path) const;
};

}  // namespace spillway::app
