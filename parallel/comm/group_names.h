// Makes the texts that name the members of a group and that say why a group is unusable, so that every communicator uses the same words.
// Plain values.
#pragma once
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/types.h"

namespace spillway::parallel {

class GroupNames {
 public:
  /// Makes the names of a group. `world_ranks` holds for each member its rank in the group of all `world_size` ranks of the run.
  GroupNames(std::vector<int> world_ranks, int world_size) : world_ranks_(std::move(world_ranks)), world_size_(world_size) {}

  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int rank) const { return world_ranks_[static_cast<size_t>(rank)]; }
  /// Returns "rank 1", or, in a group of only some ranks of the run, "rank 1 of the group (rank 5 of the run)".
  std::string name(int rank) const;
  std::string names(const std::vector<int>& ranks) const;

  std::string left(const std::vector<int>& ranks) const;
  std::string died(int rank, const std::string& how) const;
  std::string gave_up(int rank, const std::string& what) const;
  std::string late(const std::vector<int>& ranks, const std::string& op, double timeout_s) const;

 private:
  std::vector<int> world_ranks_;
  int world_size_;
};

std::string name_of_message(int from, int to, int tag);
std::string in_parent(const std::string& cause);
/// Returns an Error(peer) for an operation that failed because its group is broken, for the reason `cause`. A negative `waited_s` means
/// that the operation was called after the group had failed, so it did not wait.
std::exception_ptr peer_error(const std::string& op, const std::string& cause, double waited_s);
std::exception_ptr bug_error(const std::string& op, const std::string& wrong);
std::string wrong_size(i64 sent_bytes, i64 awaited_bytes);

}  // namespace spillway::parallel
