// How the ranks of a run call their folders on a scratch path. By these names a restart finds what a dead process of the run left, even one
// that had another number of ranks. Values; reads the path alone.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "offload/scratch_folder.h"

namespace spillway::app {

/// Of one rank.
struct ScratchId {
  std::string run_id;
  int rank = 0, ranks = 1;

  /// What offload::ScratchFolder takes.
  std::string of(int any_rank) const { return run_id + (ranks > 1 ? "-rank" + std::to_string(any_rank) : ""); }
  std::string mine() const { return of(rank); }
  /// Of a folder's name: it is a present rank's.
  bool has(const std::string& folder) const;

  /// Folders that dead ranks of this run left on `path`, however many they were.
  std::vector<offload::Orphan> left_behind(const std::filesystem::path& path) const;
  /// Their bytes.
  i64 bytes_left_behind(const std::filesystem::path& path) const;
};

}  // namespace spillway::app
