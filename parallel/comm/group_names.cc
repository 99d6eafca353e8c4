#include "parallel/comm/group_names.h"

#include <fmt/format.h>

#include "base/units.h"

namespace spillway::parallel {

std::string GroupNames::name(int rank) const {
  return size() == world_size_ ? fmt::format("rank {}", rank)
                               : fmt::format("rank {} of the group (rank {} of the run)", rank, world_rank(rank));
}

std::string GroupNames::names(const std::vector<int>& ranks) const {
  std::vector<std::string> all;
  for (const int r : ranks) all.push_back(name(r));
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string GroupNames::left(const std::vector<int>& ranks) const {
  return fmt::format("expected {} to take part, but the rank has closed its communicator", names(ranks));
}

std::string GroupNames::died(int rank, const std::string& how) const {
  return fmt::format("expected {} to take part, but the process of this rank has ended: {}", name(rank), how);
}

std::string GroupNames::gave_up(int rank, const std::string& what) const { return fmt::format("{} gave up: {}", name(rank), what); }

std::string GroupNames::late(const std::vector<int>& ranks, const std::string& op, double timeout_s) const {
  return fmt::format("expected {} to take part in {} within {}, got no call", names(ranks), op, format_duration(timeout_s));
}

std::string name_of_message(int from, int to, int tag) { return fmt::format("message from rank {} to rank {}, tag {}", from, to, tag); }

std::string in_parent(const std::string& cause) { return "in the group from which this one was split: " + cause; }

std::exception_ptr peer_error(const std::string& op, const std::string& cause, double waited_s) {
  const std::string how_long = waited_s < 0 ? "the group cannot be used after this error" : "waited " + format_duration(waited_s);
  return std::make_exception_ptr(Error(ErrorCode::peer, fmt::format("[{}] {}; {}", op, cause, how_long)));
}

std::exception_ptr bug_error(const std::string& op, const std::string& wrong) {
  return std::make_exception_ptr(Error(ErrorCode::bug, fmt::format("[{}] {}", op, wrong)));
}

std::string wrong_size(i64 sent_bytes, i64 awaited_bytes) {
  return fmt::format("expected a send and a receive of the same size, got {} bytes sent and {} bytes to receive", sent_bytes,
                     awaited_bytes);
}

}  // namespace spillway::parallel
