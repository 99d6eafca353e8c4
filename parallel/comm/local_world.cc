#include "parallel/comm/local_world.h"

#include <algorithm>

#include "base/thread.h"
#include "parallel/comm/local_group.h"

namespace spillway::parallel {
namespace {

constexpr double kLongestTimeout_s = 1e8;  // a longer time-out would overflow the clock
// If the watching thread wakes this much later than planned, the process was suspended: even a busy machine delays the thread less.
constexpr Clock::duration kLate = std::chrono::seconds(1);

Clock::duration timeout_of(const LocalOptions& options) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(options.timeout_s, kLongestTimeout_s)));
}

int useful_threads(int ranks, const LocalOptions& options) {
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  return static_cast<int>(std::min(static_cast<i64>(ranks) * options.threads, static_cast<i64>(cores)));
}

}  // namespace

LocalWorld::LocalWorld(int ranks, const LocalOptions& options)
    : timeout_(timeout_of(options)), movers_(useful_threads(ranks, options)), last_heard_(static_cast<size_t>(ranks)) {
  for (int r = 0; r < ranks; ++r) heard_from(r);
  watcher_ = start_thread([this, now = Clock::now()] { watch_all(now); });
}

LocalWorld::~LocalWorld() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  watcher_.join();
}

void LocalWorld::watch(const std::shared_ptr<LocalGroup>& group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(group);
}

void LocalWorld::works_alone(int rank) {
  heard_until(rank, Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout_ * kLongestWork));
}

// Checks the groups twice per time-out, so that a wait that begins after one check is seen at the next, before its time is up. The
// first check is scheduled relative to the world's creation time, because this thread may be suspended before it can read the clock
// itself.
void LocalWorld::watch_all(Clock::time_point next) {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    const Clock::time_point now = Clock::now();
    // If this thread was suspended, all ranks were probably suspended too, so none of them counts as late.
    if (now > next + std::max(timeout_ / 4, kLate)) {
      for (int r = 0; r < size(); ++r) heard_until(r, std::max(last_heard(r), Clock::now()));
    }
    next = check_groups(now);
    lock.lock();
    wake_.wait_until(lock, next, [&] { return stop_; });
  }
}

Clock::time_point LocalWorld::check_groups(Clock::time_point now) {
  std::vector<std::weak_ptr<LocalGroup>> groups;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [](const auto& group) { return group.expired(); });
    groups = groups_;
  }
  Clock::time_point next = now + timeout_ / 2;
  for (const auto& weak : groups) {
    if (const auto group = weak.lock()) next = std::min(next, group->check(now));
  }
  return next;
}

}  // namespace spillway::parallel
