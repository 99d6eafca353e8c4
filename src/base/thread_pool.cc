#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/pause.h"
#include "base/thread.h"

namespace spillway {
namespace {

// Waking a sleeping thread takes tens of microseconds, as long as a small operation runs. A waiting thread therefore polls this many times
// before it sleeps.
constexpr int kSpins = 4000;

// bit masks of State::round: whether the round is open, how many threads are inside, and the round's number in the upper bits
constexpr u64 kOpen = 1 << 16, kInside = kOpen - 1, kNumber = 2 * kOpen;

template <class Condition>
bool spin(Condition met) {
  for (int i = 0; i < kSpins; ++i) {
    if (met()) return true;
    pause_spinning();
  }
  return met();
}

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake, finished;
  std::atomic<bool> taken{false};  // true while the pool runs the work of a caller
  const std::function<void(i64, int)>* task = nullptr;
  i64 count = 0;
  std::atomic<i64> next{0};
  // A packed counter. The bits above kOpen hold the round's number, kOpen is set while workers may join the round, and the bits below count
  // the workers that have joined. The caller waits only for workers that have joined, never for one that wakes late or gets no CPU time.
  std::atomic<u64> round{0};
  std::atomic<bool> stop{false};
  std::exception_ptr error;
  std::vector<std::thread> workers;

  void work(int thread) {
    for (i64 i; (i = next.fetch_add(1)) < count;) {
      try {
        (*task)(i, thread);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    }
  }

  void end() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
  }

  void worker(int thread) {
    u64 seen = 0;
    for (;;) {
      const auto called = [&] { return stop || ((round & kOpen) && round / kNumber != seen); };
      if (!spin(called)) {
        std::unique_lock lock(mutex);
        wake.wait(lock, called);
      }
      if (stop) return;
      u64 now = round;
      while ((now & kOpen) && !round.compare_exchange_weak(now, now + 1)) {
      }
      seen = now / kNumber;
      if (!(now & kOpen)) continue;
      work(thread);
      if (((round -= 1) & (kOpen | kInside)) == 0) {
        std::lock_guard lock(mutex);
        finished.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads < 1) throw Error(ErrorCode::usage, "[thread pool] expected at least 1 thread, got " + std::to_string(threads));
  State* state = state_.get();
  start_threads(
      state->workers, threads - 1, [state](int t) { state->worker(t + 1); }, [state] { state->end(); });
}

ThreadPool::~ThreadPool() {
  state_->end();
  for (auto& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(i64 count, const std::function<void(i64, int)>& task) {
  State& s = *state_;
  if (count <= 1 || s.workers.empty() || s.taken.exchange(true)) return run_in_place(count, task);
  {
    std::lock_guard lock(s.mutex);
    s.task = &task;
    s.count = count;
    s.next = 0;
    s.error = nullptr;
    s.round = (s.round / kNumber + 1) * kNumber + kOpen;
  }
  s.wake.notify_all();
  s.work(0);
  s.round -= kOpen;
  const auto all_done = [&] { return (s.round & kInside) == 0; };
  if (!spin(all_done)) {
    std::unique_lock lock(s.mutex);
    s.finished.wait(lock, all_done);
  }
  const std::exception_ptr error = std::exchange(s.error, nullptr);
  s.taken = false;
  if (error) std::rethrow_exception(error);
}

void ThreadPool::run_in_place(i64 count, const std::function<void(i64, int)>& task) {
  std::exception_ptr error;
  for (i64 i = 0; i < count; ++i) {
    try {
      task(i, 0);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void ThreadPool::for_ranges(i64 n, i64 grain, const std::function<void(i64, i64)>& body) {
  run(ceil_div(n, grain), [&](i64 i, int) { body(i * grain, std::min(n, (i + 1) * grain)); });
}

}  // namespace spillway
