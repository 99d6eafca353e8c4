// The threads that carry transfers out for ranks of one process. All of them serve all ranks and groups: the work is cut into pieces and
// any thread takes the next one, so that also what concerns one rank alone (a reduction to its root) goes at the speed of all, and nothing
// that a thread does ever waits for a rank. What is too small to be worth a thread's waking is done by whoever asks for it. Thread-safe.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/comm/transfer.h"

namespace spillway::parallel {

class Movers {
 public:
  /// At least one.
  explicit Movers(int threads);
  /// Nothing may be under way.
  ~Movers();
  Movers(const Movers&) = delete;
  Movers& operator=(const Movers&) = delete;

  /// Returns at once; `done` is called by any thread, perhaps before the return, when all is in its place.
  void move(std::vector<Transfer> transfers, std::function<void()> done);

 private:
  struct Job;
  using Lock = std::unique_lock<std::mutex>;
  void serve();
  void end();
  bool wait_for_work(Lock& lock);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;  // those with pieces nobody has taken
  std::atomic<bool> has_work_{false};       // queue_ is not empty, or stop_: to be looked at without the mutex
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace spillway::parallel
