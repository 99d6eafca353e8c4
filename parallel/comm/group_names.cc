#include "parallel/comm/group_names.h"

#include <fmt/format.h>

#include "base/units.h"

namespace spillway::parallel {

std::string GroupNames::name(int rank) const {
  return size() == world_size_ ? fmt::format("rank {}", rank) : fmt::format("rank {} (rank {} of all)", rank, world_rank(rank));
}

std::string GroupNames::names(const std::vector<int>& ranks) const {
  std::vector<std::string> all;
  for (const int r : ranks) all.push_back(name(r));
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string GroupNames::left(const std::vector<int>& ranks) const {
  return fmt::format("expected {} to come, got the end of its communicator", names(ranks));
}

std::string GroupNames::died(int rank, const std::string& how) const {
  return fmt::format("expected {} to come, got the end of its process: {}", name(rank), how);
}

std::string GroupNames::gave_up(int rank, const std::string& what) const { return fmt::format("{} gave up: {}", name(rank), what); }

std::string GroupNames::late(const std::vector<int>& ranks, const std::string& op, double timeout_s) const {
  return fmt::format("expected {} to come to {} within {}, got nothing", names(ranks), op, format_duration(timeout_s));
}

std::string name_of_message(int from, int to, int tag) { return fmt::format("message from rank {} to rank {}, tag {}", from, to, tag); }

std::string in_parent(const std::string& cause) { return "in the group this was split from: " + cause; }

std::exception_ptr peer_error(const std::string& op, const std::string& cause, double waited_s) {
  const std::string how_long = waited_s < 0 ? "the group is of no use since" : "waited " + format_duration(waited_s);
  return std::make_exception_ptr(Error(ErrorCode::peer, fmt::format("[{}] {}; {}", op, cause, how_long)));
}

std::exception_ptr bug_error(const std::string& op, const std::string& wrong) {
  return std::make_exception_ptr(Error(ErrorCode::bug, fmt::format("[{}] {}", op, wrong)));
}

std::string wrong_size(i64 sent_bytes, i64 awaited_bytes) {
  return fmt::format("expected a receive of the size that is sent, got {} bytes sent and {} awaited", sent_bytes, awaited_bytes);
}

}  // namespace spillway::parallel
