#include "parallel/run/executor.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/thread.h"

namespace spillway::parallel {
namespace {

class Run {
 public:
  Run(const List& list, const std::function<double(const Instruction&)>& perform,
      const std::function<void(const std::exception_ptr&)>& failed)
      : list_(list), perform_(perform), failed_(failed), done_(list.size(), 0), timings_(list.size()), start_(Clock::now()) {
    for (u32 i = 0; i < list.size(); ++i) lanes_[static_cast<size_t>(list[i].lane)].push_back(i);
  }

  bool uses(size_t lane) const { return !lanes_[lane].empty(); }
  void lane(size_t l) {
    for (u32 i : lanes_[l]) {
      if (!ready(i)) return;
      timings_[i].start_us = now_us();
      try {
        timings_[i].disk_us = perform_(list_[i]);
      } catch (...) {
        return stop(std::current_exception());
      }
      timings_[i].end_us = now_us();
      finished(i);
    }
  }
  /// Rethrows the first error or, if there is none, returns the times. Called after the threads of all lanes have finished the list.
  std::vector<Timing> timings() {
    if (error_) std::rethrow_exception(error_);
    return std::move(timings_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  double now_us() const { return std::chrono::duration<double, std::micro>(Clock::now() - start_).count(); }

  // Waits until the instructions that instruction i names in `after` are done. Returns false if an instruction has failed.
  bool ready(u32 i) {
    std::unique_lock lock(mutex_);
    for (u32 before : list_[i].after) changed_.wait(lock, [&] { return error_ || done_[before]; });
    return !error_;
  }

  void finished(u32 i) {
    {
      std::lock_guard lock(mutex_);
      done_[i] = 1;
    }
    changed_.notify_all();
  }

  void stop(const std::exception_ptr& error) {
    {
      std::lock_guard lock(mutex_);
      if (error_) return;
      error_ = error;
    }
    changed_.notify_all();
    if (failed_) failed_(error);
  }

  const List& list_;
  const std::function<double(const Instruction&)>& perform_;
  const std::function<void(const std::exception_ptr&)>& failed_;
  std::array<std::vector<u32>, kLanes> lanes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<char> done_;
  std::vector<Timing> timings_;
  std::exception_ptr error_;
  const Clock::time_point start_;
};

}  // namespace

// Holds the thread that runs the instructions of one lane. It runs one piece of work at a time.
class Executor::LaneThread {
 public:
  LaneThread() : thread_(start_thread([this] { run(); })) {}
  ~LaneThread() {
    give([this] { ends_ = true; });
    thread_.join();
  }
  void give(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      work_ = std::move(work);
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !work_; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      changed_.wait(lock, [&] { return work_ != nullptr; });
      lock.unlock();
      work_();
      lock.lock();
      work_ = nullptr;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // the work to do next; null if there is none
  bool ends_ = false;           // true when the thread must end; set only by its last piece of work
  std::thread thread_;
};

Executor::Executor() = default;
Executor::~Executor() = default;

std::vector<Timing> Executor::run(const List& list, const std::function<double(const Instruction&)>& perform,
                                  const std::function<void(const std::exception_ptr&)>& failed) {
  Run run(list, perform, failed);
  for (size_t l = 1; l < kLanes; ++l) {
    if (!run.uses(l)) continue;
    if (!threads_[l]) threads_[l] = std::make_unique<LaneThread>();
    threads_[l]->give([&run, l] { run.lane(l); });
  }
  run.lane(0);
  for (const auto& thread : threads_) {
    if (thread) thread->wait();
  }
  return run.timings();
}

}  // namespace spillway::parallel
