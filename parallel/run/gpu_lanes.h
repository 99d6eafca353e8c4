// A rank's queues on its GPU, one a lane, and where a list stands on them. What touches the GPU's memory and page-locked memory alone is
// only put on its lane's queue: what comes after it on another lane waits for it on the GPU, and the CPU goes on to launch the next. What
// the CPU does itself waits for what it comes after, and is done when it returns. Used by the threads of the executor.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "device/gpu_queue.h"
#include "parallel/run/executor.h"

namespace spillway::parallel {

class GpuLanes {
 public:
  explicit GpuLanes(Device gpu);

  const GpuQueue& queue(Lane lane) const { return *queues_[static_cast<size_t>(lane)]; }

  /// Of a list that nothing of has run, when the queues are empty.
  void begin(const List& list);
  /// Once what it comes after has been begun, on its lane's thread. `queued`: all that `work` does it puts on the lane's queue. Returns
  /// what `work` does.
  double perform(const Instruction& i, bool queued, const std::function<double()>& work);
  /// When all have been begun: waits for them, and says when they ran. Errors of the GPU are Error(io).
  void end(std::vector<Timing>& timings);

 private:
  using Clock = std::chrono::steady_clock;
  // Of one instruction.
  struct Moment {
    explicit Moment(Device gpu) : begin(gpu), end(gpu) {}
    const GpuEvent begin, end;
    bool queued = false;
    double begin_us = 0;  // of what the CPU does
  };

  const Device gpu_;
  std::vector<std::unique_ptr<GpuQueue>> queues_;
  std::vector<std::unique_ptr<Moment>> moments_;  // as many as the longest list has instructions
  const GpuEvent begin_;
  Clock::time_point began_;
  const List* list_ = nullptr;
};

}  // namespace spillway::parallel
