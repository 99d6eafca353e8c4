// StepsAhead prefetches the steps of a loader: a background thread makes the next step while the caller works on the current one. Not
// thread-safe.
#pragma once
#include <future>
#include <thread>

#include "data/loader/loader.h"
#include "device/stream.h"

namespace spillway::data {

class StepsAhead {
 public:
  /// Creates the prefetcher. Prefetched steps are allocated from `memory`, which is host memory. At most one prefetched step exists at a
  /// time, in addition to the step that the caller is using. The loader and the allocator must outlive this object.
  StepsAhead(const Loader& loader, Allocator& memory) : loader_(loader), memory_(memory) {}
  /// Waits for the step that the background thread is making.
  ~StepsAhead();
  StepsAhead(const StepsAhead&) = delete;
  StepsAhead& operator=(const StepsAhead&) = delete;

  /// Returns Loader::step(cursor) and throws its errors. The background thread prefetches the step after the one that was last returned.
  /// For any other `cursor`, or if the system refused to start a thread for prefetching, the step is made during the call, from the
  /// current stream.
  StepBatch step(i64 cursor);

 private:
  const Loader& loader_;
  Allocator& memory_;
  i64 next_cursor_ = 0;
  std::future<StepBatch> next_;  // the step at next_cursor_
  std::thread thread_;           // the thread that makes the step at next_cursor_
};

}  // namespace spillway::data
