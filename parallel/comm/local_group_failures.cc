// Ends a group of threads early when a member left, gave up, or does not call in time. Operations that
// still wait for a member then fail. Operations that all members have entered are completed.
#include <algorithm>

#include "parallel/comm/local_group.h"
#include "parallel/comm/pending.h"

namespace spillway::parallel {
namespace {

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

std::vector<int> LocalGroup::gone_among(const std::vector<int>& ranks) const {
  std::vector<int> gone;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(gone), [&](int r) { return gone_[static_cast<size_t>(r)]; });
  return gone;
}

// If one of the missing members is too late, returns the reason as a text. A member that makes calls in any group is late but alive, so its
// time-out counts from its last call.
std::optional<std::string> LocalGroup::late_cause(const std::string& op, Clock::time_point since, const std::vector<int>& missing,
                                                  Clock::time_point now, Clock::time_point& next) const {
  std::vector<int> late;
  for (const int r : missing) {
    const Clock::time_point expiry = std::max(since, world_.last_heard(names_.world_rank(r))) + world_.timeout();
    if (expiry <= now) {
      late.push_back(r);
    } else {
      next = std::min(next, expiry);
    }
  }
  if (late.empty()) return std::nullopt;
  return names_.late(late, op, seconds(world_.timeout()));
}

Clock::time_point LocalGroup::check(Clock::time_point now) {
  Clock::time_point next = Clock::time_point::max();
  std::optional<std::string> cause;
  {
    const Lock lock(mutex_);
    for (const auto& meeting : meetings_) {
      const std::vector<int> missing = meeting->missing();
      const auto first = std::find_if(meeting->events.begin(), meeting->events.end(), [](const auto& event) { return event.has_value(); });
      const Call& called = meeting->calls[static_cast<size_t>(first - meeting->events.begin())];
      if (!cause) cause = late_cause(std::string(to_string(called.what)), meeting->since, missing, now, next);
    }
    for (const auto& [address, queue] : messages_) {
      const int peer = queue.front().is_send ? address.to : address.from;
      if (!cause) cause = late_cause(name_of(address), queue.front().since, {peer}, now, next);
    }
  }
  if (cause) break_up(*cause);
  return next;
}

// Returns true if another member waits for this member, or if this member has an operation that still waits.
bool LocalGroup::is_needed(int rank) const {
  return !meetings_.empty() ||
         std::any_of(messages_.begin(), messages_.end(), [&](const auto& m) { return m.first.from == rank || m.first.to == rank; });
}

void LocalGroup::leave(int rank) noexcept {
  Pending mine;  // the destructor of `mine` waits until this member's data is no longer moved; whoever needs a result waits for its event
  Lock lock(mutex_);
  gone_[static_cast<size_t>(rank)] = true;
  const bool needed = is_needed(rank);
  for (const auto& moving : moving_) {
    if (std::find(moving->members.begin(), moving->members.end(), rank) != moving->members.end()) mine.add(moving->events.front());
  }
  lock.unlock();
  if (needed) break_up(names_.left({rank}));
}

void LocalGroup::give_up(int rank, const std::string& what) noexcept { break_up(names_.gave_up(rank, what)); }

std::vector<LocalGroup::Failure> LocalGroup::take_waiting() {
  std::vector<Failure> waiting;
  for (const auto& meeting : meetings_) {
    for (size_t r = 0; r < meeting->events.size(); ++r) {
      if (meeting->events[r]) waiting.push_back({std::string(to_string(meeting->calls[r].what)), *meeting->events[r], meeting->since});
    }
  }
  for (const auto& [address, queue] : messages_) {
    for (const Message& message : queue) waiting.push_back({name_of(address), message.event, message.since});
  }
  meetings_.clear();
  messages_.clear();
  return waiting;
}

void LocalGroup::break_up(const std::string& cause) {
  Lock lock(mutex_);
  if (broken_) return;
  broken_ = cause;
  std::vector<Failure> waiting = take_waiting();
  const auto children = std::move(children_);
  lock.unlock();
  const Clock::time_point now = Clock::now();
  for (Failure& f : waiting) f.event.fail(peer_error(f.op, cause, seconds(now - f.since)));
  for (const auto& weak : children) {
    if (const auto child = weak.lock()) child->break_up(in_parent(cause));
  }
}

Event LocalGroup::refused(const std::string& op) const {
  Event event;
  event.fail(peer_error(op, *broken_, -1));
  return event;
}

}  // namespace spillway::parallel
