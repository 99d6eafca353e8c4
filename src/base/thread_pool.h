// Defines ThreadPool, the compute threads of a rank. Work is split into numbered tasks whose limits depend on the shape
// of the work alone, so results do not depend on the number of threads or on which thread runs which task. A pool
// serves one caller at a time, and the calling thread works too. Worker threads keep denormals (no flush-to-zero).
#pragma once
#include <functional>
#include <memory>

#include "base/types.h"

namespace spillway {

class ThreadPool {
 public:
  /// Creates a pool of `threads` (at least 1) compute threads, counting the caller of run().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  /// Calls task(i, thread) once for each i in [0, count), with thread in [0, threads()), and returns when all calls are done. Rethrows the
  /// first exception of a task after the others have finished. If run() is called from inside a task or by a second caller, it runs its
  /// tasks serially on the calling thread.
  void run(i64 count, const std::function<void(i64 task, int thread)>& task);

  /// Runs the tasks without other threads: one after the other in order, each with thread number 0. Rethrows the first exception after the
  /// last task.
  static void run_in_place(i64 count, const std::function<void(i64 task, int thread)>& task);

  /// Cuts [0, n) into ranges of `grain` elements (the last may be shorter) and calls body(begin, end) for each, as parallel tasks.
  void for_ranges(i64 n, i64 grain, const std::function<void(i64 begin, i64 end)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway
