// A loader's steps in their order, each made by a thread of its own while its caller works on the one before. Used by one thread at a time.
#pragma once
#include <future>
#include <thread>

#include "data/loader.h"
#include "device/stream.h"

namespace spillway::data {

class StepsAhead {
 public:
  /// `memory`: of the steps made ahead, in the host's; one of them at a time beside what its caller has. All outlive it.
  StepsAhead(const Loader& loader, Allocator& memory) : loader_(loader), memory_(memory) {}
  /// Waits for the step that is being made.
  ~StepsAhead();
  StepsAhead(const StepsAhead&) = delete;
  StepsAhead& operator=(const StepsAhead&) = delete;

  /// Loader::step(cursor), and its errors. Another cursor than the one after the last is made now, by the stream in force; so is the next
  /// one when the system refuses a thread.
  StepBatch step(i64 cursor);

 private:
  const Loader& loader_;
  Allocator& memory_;
  i64 next_cursor_ = 0;
  std::future<StepBatch> next_;  // of that cursor
  std::thread thread_;           // makes it
};

}  // namespace spillway::data
