// A rank's compute threads. Work is handed over as numbered tasks whose limits depend on the shape of the work alone, so results never
// depend on how many threads there are; which thread runs which task does not matter. One caller at a time per pool; the caller works too.
// Worker threads keep denormals (no flush-to-zero).
#pragma once
#include <functional>
#include <memory>

#include "base/types.h"

namespace spillway {

class ThreadPool {
 public:
  /// `threads` compute threads in all, the caller of run() included; at least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  /// Calls task(i, thread) once for each i in [0, count), thread in [0, threads()); returns when all are done. The first exception thrown
  /// by a task is rethrown here after the others have finished. A run() inside a task, or from a second caller, runs serially in place.
  void run(i64 count, const std::function<void(i64 task, int thread)>& task);

  /// The same without other threads: each task in order on thread 0, the first exception rethrown after the last.
  static void run_in_place(i64 count, const std::function<void(i64 task, int thread)>& task);

  /// Cuts [0, n) into pieces of `grain` (the last may be short) and calls body(begin, end) for each.
  void for_ranges(i64 n, i64 grain, const std::function<void(i64 begin, i64 end)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway
