// A group's end before its time, as local_group_failures.cc has it for threads: who notices tells the others, so that all fail alike.
#include <algorithm>

#include "parallel/process_group.h"

namespace spillway::parallel {
namespace {

double seconds_since(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

}  // namespace

bool ProcessGroup::refuses(const std::string& op, const Event& event) const {
  if (!broken_) return false;
  Event(event).fail(peer_error(op, *broken_, -1));
  return true;
}

void ProcessGroup::abort(const std::string& what) { break_up(names_.gave_up(rank_, what), true); }

void ProcessGroup::break_up(const std::string& cause, bool tell) {
  if (broken_ || has_left_) return;
  broken_ = cause;
  if (tell) tell_others({.kind = ProcessLetter::Kind::broken, .text = cause});
  fail_waiting(cause);
  for (const auto& weak : children_) {
    if (const auto child = weak.lock()) child->break_up(in_parent(cause), false);
  }
}

void ProcessGroup::fail_waiting(const std::string& cause) {
  for (Operation& op : queue_) op.event.fail(peer_error(std::string(to_string(op.call.what)), cause, seconds_since(op.since)));
  for (auto& [serial, one] : offered_) one.event.fail(peer_error(message_to(one.to), cause, seconds_since(one.since)));
  for (auto& [address, all] : awaited_) {
    for (Awaited& one : all) one.event.fail(peer_error(message_from(address), cause, seconds_since(one.since)));
  }
  for (Moving& one : moving_) {
    world_.wire().drop(one.traveling.ticket);
    one.event.fail(peer_error(one.name, cause, seconds_since(one.since)));
  }
  if (running_) {
    for (const Traveling& one : running_->traveling) world_.wire().drop(one.ticket);
  }
  moving_.clear(), queue_.clear(), running_.reset(), offered_.clear(), awaited_.clear(), coming_.clear();
}

void ProcessGroup::break_if_gone(const std::vector<int>& needed) {
  std::vector<int> gone;
  for (const int r : needed) {
    const std::optional<i64>& left = left_[static_cast<size_t>(r)];
    if (left && (!running_ || *left <= exchanges_)) gone.push_back(r);
  }
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  if (!gone.empty()) break_up(names_.left(gone), true);
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
  return names_.late(late, op, world_.timeout_s());
}

void ProcessGroup::check(Clock::time_point now) {
  if (broken_) return;
  std::optional<std::string> cause;
  if (!queue_.empty()) {
    const Operation& op = queue_.front();
    const std::string name(to_string(op.call.what));
    if (!running_) {
      cause = late(missing_at(op), name, op.since, now);
    } else if (running_->published) {
      const Clock::time_point since = running_->since;
      cause = late(lacking(), name, since, now);
      if (broken_) return;
    }
  }
  for (const auto& [serial, one] : offered_) {
    if (!cause) cause = late({one.to.peer}, message_to(one.to), one.since, now);
  }
  for (const auto& [address, all] : awaited_) {
    if (!cause) cause = late({address.peer}, message_from(address), all.front().since, now);
  }
  for (const Moving& one : moving_) {
    if (!cause) cause = late({one.traveling.peer}, one.name, one.since, now);
  }
  if (cause) break_up(*cause, true);
}

void ProcessGroup::leave(Event gone) { leaving_ = std::move(gone); }

// What all came to is carried to its end; what waits, or is waited for, ends the group.
void ProcessGroup::may_leave() {
  if (!leaving_ || has_left_ || running_ || !moving_.empty()) return;
  if (!queue_.empty() || !offered_.empty() || !awaited_.empty() || !offers_to_me_.empty() || !coming_.empty()) {
    break_up(names_.left({rank_}), true);
  }
  has_left_ = true;
  tell_others({.kind = ProcessLetter::Kind::left, .a = exchanges_});
  leaving_->set();
}

bool ProcessGroup::is_over() const {
  if (!has_left_) return false;
  for (int r = 0; r < size(); ++r) {
    if (r != rank_ && !left_[static_cast<size_t>(r)]) return false;
  }
  return true;
}

}  // namespace spillway::parallel
