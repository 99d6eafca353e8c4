// A rank's queues on its GPU, one a lane, and where a list stands on them. What touches the GPU's memory and page-locked memory alone is
// only put on its lane's queue: what comes after it on another lane waits for it on the GPU, and the CPU goes on to launch the next. What
// the CPU does itself waits for what it comes after, and is done when it returns. Used by the threads of the executor.
#pragma once
#include <chrono>
#include <memory>

#include "device/stream.h"
#include "parallel/device/lanes.h"

namespace spillway::parallel {

class GpuLanes final : public Lanes {
 public:
  /// `work`: the stream in which instructions are performed, but for its queue, which is the lane's. `only_queued`: all that an instruction
  /// does is put on the lane's queue.
  GpuLanes(const Stream& work, std::function<bool(const Instruction&)> only_queued);

  const GpuQueue* queue(Lane lane) const override { return queues_[static_cast<size_t>(lane)].get(); }

  /// When the queues are empty.
  void begin(const List& list) override;
  double perform(const Instruction& i, const std::function<double()>& work) override;
  /// Errors of the GPU are Error(io).
  void end(std::vector<Timing>& timings) override;

 private:
  using Clock = std::chrono::steady_clock;
  // Of one instruction.
  struct Moment {
    explicit Moment(Device gpu) : begin(gpu), end(gpu) {}
    const GpuEvent begin, end;
    bool queued = false;
    double begin_us = 0;  // of what the CPU does
  };

  void wait_for_what_comes_before(const Instruction& i, bool queued) const;
  double perform_timed(const Instruction& i, bool queued, const std::function<double()>& work);

  const Stream work_;
  const std::function<bool(const Instruction&)> only_queued_;
  std::vector<std::unique_ptr<GpuQueue>> queues_;
  std::vector<std::unique_ptr<Moment>> moments_;  // as many as the longest list has instructions
  const GpuEvent begin_;
  Clock::time_point began_;
  const List* list_ = nullptr;
};

}  // namespace spillway::parallel
