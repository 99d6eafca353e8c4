// Movers are a pool of threads that carries out transfers for all ranks and groups of one process. Work is cut into pieces, and any thread
// takes the next piece, so an operation that concerns one rank only (a reduction to its root) also runs at the speed of all threads. No
// thread of the pool ever waits for a rank. Very small transfers are not worth waking a thread, so the caller carries them out itself.
// Thread-safe.
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
  /// Starts `threads` threads, at least 1.
  explicit Movers(int threads);
  /// The pool may be destroyed only when no transfer is in progress.
  ~Movers();
  Movers(const Movers&) = delete;
  Movers& operator=(const Movers&) = delete;

  /// Starts the transfers and returns at once. When all of them are done, one of the threads calls `done`, possibly before this function
  /// returns.
  void move(std::vector<Transfer> transfers, std::function<void()> done);

 private:
  struct Job;
  using Lock = std::unique_lock<std::mutex>;
  void serve();
  void end();
  bool wait_for_work(Lock& lock);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;  // jobs with pieces that no thread has taken
  std::atomic<bool> has_work_{false};       // true if queue_ is not empty or stop_ is set; can be read without the mutex
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace spillway::parallel
