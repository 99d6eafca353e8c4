// A LocalWorld is the state that a group of threads shares with all groups split from it: the threads that move data, the time of each
// rank's last call, and a thread that checks whether any rank is too late. Thread-safe. Internal; users see communicator_local.h.
#pragma once
#include <chrono>

#include "parallel/comm/communicator_local.h"
#include "parallel/comm/movers.h"

namespace spillway::parallel {

using Clock = std::chrono::steady_clock;

class LocalGroup;

class LocalWorld {
 public:
  LocalWorld(int ranks, const LocalOptions& options);
  /// The world may be destroyed only when no operation is in progress in any group.
  ~LocalWorld();
  LocalWorld(const LocalWorld&) = delete;
  LocalWorld& operator=(const LocalWorld&) = delete;

  int size() const { return static_cast<int>(last_heard_.size()); }
  Movers& movers() { return movers_; }
  Clock::duration timeout() const { return timeout_; }

  /// Watches this group's members for time-outs until the group is destroyed.
  void watch(const std::shared_ptr<LocalGroup>& group);
  /// Records that a rank, given by its number in the world, made a call in some group, so it is alive.
  void heard_from(int rank) { heard_until(rank, Clock::now()); }
  /// Records that a rank does long work until its next call. The other ranks wait for it and do not count it as late.
  void works_alone(int rank);
  Clock::time_point last_heard(int rank) const { return Clock::time_point(Clock::duration(last_heard_[static_cast<size_t>(rank)])); }

 private:
  void heard_until(int rank, Clock::time_point time) { last_heard_[static_cast<size_t>(rank)] = time.time_since_epoch().count(); }
  void watch_all(Clock::time_point next);
  Clock::time_point check_groups(Clock::time_point now);

  const Clock::duration timeout_;
  Movers movers_;
  std::vector<std::atomic<Clock::rep>> last_heard_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::weak_ptr<LocalGroup>> groups_;
  bool stop_ = false;
  std::thread watcher_;
};

}  // namespace spillway::parallel
