// Ends a group of processes early, as local_group_failures.cc does for a group of threads. The member
// that notices a failure tells the others, so that all members fail for the same reason.
#include <algorithm>
#include <iterator>

#include "parallel/comm/process_group.h"

namespace spillway::parallel {
namespace {

double seconds_since(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

}  // namespace

bool ProcessGroup::refuses(const std::string& op, const Event& event) const {
  if (!broken_) return false;
  Event(event).fail(peer_error(op, *broken_, -1));
  return true;
}

void ProcessGroup::give_up(const std::string& what) { break_up(names_.gave_up(rank_, what)); }

// Breaks the group. Collectives that have not begun fail. A collective that all members have entered goes on as long as the
// members that it needs take part: each member tells the others the first exchange in which it takes no part.
void ProcessGroup::break_up(const std::string& cause) {
  if (broken_ || has_left_) return;
  broken_ = cause;
  fail_waiting(cause);
  tell_others({.kind = ProcessLetter::Kind::broken, .a = end_of_running(), .words = world_.silent(), .text = cause});
  for (const auto& weak : children_) {
    if (const auto child = weak.lock()) child->break_up(in_parent(cause));
  }
}

void ProcessGroup::fail(const std::string& cause) {
  if (!broken_) broken_ = names_.gave_up(rank_, cause);
  running_.reset();
  fail_waiting(*broken_);
  for (Moving& one : moving_) one.event.fail(peer_error(one.name, *broken_, seconds_since(one.since)));
  moving_.clear();
  if (leaving_) has_left();
}

i64 ProcessGroup::end_of_running() const { return exchanges_ + (running_ ? running_->exchanges.count() - running_->index : 0); }

void ProcessGroup::fail_waiting(const std::string& cause) {
  // The running collective stays in the queue, because its exchanges refer to its entry there.
  const auto begin = queue_.begin() + (running_ ? 1 : 0);
  std::vector<Operation> waiting(std::make_move_iterator(begin), std::make_move_iterator(queue_.end()));
  queue_.erase(begin, queue_.end());
  for (Operation& op : waiting) op.event.fail(peer_error(std::string(to_string(op.call.what)), cause, seconds_since(op.since)));
  for (auto& [serial, one] : offered_) one.event.fail(peer_error(message_to(one.to), cause, seconds_since(one.since)));
  for (auto& [address, all] : awaited_) {
    for (Awaited& one : all) one.event.fail(peer_error(message_from(address), cause, seconds_since(one.since)));
  }
  offered_.clear(), awaited_.clear(), coming_.clear();
}

void ProcessGroup::fail_running(const std::string& cause) {
  break_up(cause);
  for (const Traveling& one : running_->traveling) world_.wire().drop(one.ticket);
  Operation& op = queue_.front();
  op.event.fail(peer_error(std::string(to_string(op.call.what)), cause, seconds_since(op.since)));
  queue_.clear(), running_.reset();
  tell_others({.kind = ProcessLetter::Kind::broken, .a = exchanges_, .text = cause});
}

void ProcessGroup::fail_moving(Moving& moving, const std::string& cause) {
  break_up(cause);
  world_.wire().drop(moving.traveling.ticket);
  moving.event.fail(peer_error(moving.name, cause, seconds_since(moving.since)));
}

// Breaks the group if a member of `needed` has left. The operation that needs these members has not begun yet.
void ProcessGroup::break_if_gone(const std::vector<int>& needed) {
  std::vector<int> gone;
  for (const int r : needed) {
    if (left_[static_cast<size_t>(r)] && std::find(gone.begin(), gone.end(), r) == gone.end()) gone.push_back(r);
  }
  if (!gone.empty()) break_up(how_gone(gone));
}

std::string ProcessGroup::how_gone(const std::vector<int>& members) const {
  for (const int r : members) {
    if (const auto how = lost_.find(r); how != lost_.end()) return names_.died(r, how->second);
  }
  return names_.left(members);
}

void ProcessGroup::lose(int world_rank, const std::string& how) {
  for (int r = 0; r < size(); ++r) {
    if (names_.world_rank(r) != world_rank || left_[static_cast<size_t>(r)]) continue;
    left_[static_cast<size_t>(r)] = true;
    stops_[static_cast<size_t>(r)] = 0;
    lost_.emplace(r, how);
    std::erase_if(moving_, [&](Moving& one) {
      if (one.traveling.peer != r) return false;
      world_.wire().is_done(one.traveling.ticket) ? one.event.set() : fail_moving(one, names_.died(r, how));
      return true;
    });
  }
}

// Fails the running collective if this exchange lacks bytes of a member that no longer takes part: that member will never send them.
void ProcessGroup::fail_if_stopped(const std::vector<int>& lacking) {
  std::vector<int> stopped;
  for (const int r : lacking) {
    const std::optional<i64>& end = stops_[static_cast<size_t>(r)];
    if (end && *end <= exchanges_) stopped.push_back(r);
  }
  if (!stopped.empty()) fail_running(broken_ ? *broken_ : how_gone(stopped));
}

std::optional<std::string> ProcessGroup::late(const std::vector<int>& missing, const std::string& op, Clock::time_point since,
                                              Clock::time_point now) const {
  std::vector<int> late;
  for (const int r : missing) {
    if (r == rank_) continue;
    const Clock::time_point from = std::max(since, world_.last_heard(names_.world_rank(r)));
    if (std::chrono::duration<double>(now - from).count() >= world_.timeout_s()) late.push_back(r);
  }
  if (late.empty()) return std::nullopt;
  for (const int r : late) world_.give_up(names_.world_rank(r));
  return names_.late(late, op, world_.timeout_s());
}

void ProcessGroup::check(Clock::time_point now) {
  if (const auto cause = running_ ? late_running(now) : late_waiting(now)) running_ ? fail_running(*cause) : break_up(*cause);
  std::erase_if(moving_, [&](Moving& one) {
    const auto cause = late({one.traveling.peer}, one.name, one.since, now);
    if (cause) fail_moving(one, *cause);
    return cause.has_value();
  });
}

std::optional<std::string> ProcessGroup::late_running(Clock::time_point now) {
  const std::string name(to_string(queue_.front().call.what));
  return running_->published ? late(lacking(), name, running_->since, now) : late(slow_readers(), name, running_->since, now);
}

std::optional<std::string> ProcessGroup::late_waiting(Clock::time_point now) const {
  std::optional<std::string> cause;
  if (!queue_.empty())
    cause = late(missing_at(queue_.front()), std::string(to_string(queue_.front().call.what)), queue_.front().since, now);
  for (const auto& [serial, one] : offered_) {
    if (!cause) cause = late({one.to.peer}, message_to(one.to), one.since, now);
  }
  for (const auto& [address, all] : awaited_) {
    if (!cause) cause = late({address.peer}, message_from(address), all.front().since, now);
  }
  return cause;
}

void ProcessGroup::leave(Event gone) {
  leaving_ = std::move(gone);
  if (world_.has_failed()) has_left();
}

void ProcessGroup::has_left() {
  has_left_ = true;
  leaving_->set();
}

// Lets this member leave once all operations that all members have entered are done. Breaks the group if other operations still wait.
void ProcessGroup::may_leave() {
  if (!leaving_ || has_left_ || running_ || !moving_.empty()) return;
  if (!queue_.empty() || !offered_.empty() || !awaited_.empty() || !offers_to_me_.empty() || !coming_.empty()) {
    break_up(names_.left({rank_}));
  }
  tell_others({.kind = ProcessLetter::Kind::left, .a = exchanges_});
  has_left();
}

bool ProcessGroup::is_over() const {
  if (!has_left_) return false;
  for (int r = 0; r < size(); ++r) {
    if (r != rank_ && !left_[static_cast<size_t>(r)]) return false;
  }
  return true;
}

}  // namespace spillway::parallel
