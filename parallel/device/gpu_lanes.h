// A rank's queues on its GPU, one a lane, and where a list stands on them. What touches the GPU's memory and page-locked memory alone is
// only put on its lane's queue: what comes after it on another lane waits for it on the GPU, and the CPU goes on to launch the next. What
// the CPU has a part in waits for what it comes after, and is done when it returns, or has left its end on its lane's queue. Used by the
// threads of the executor.
#pragma once
#include <chrono>
#include <deque>
#include <memory>

#include "device/stream.h"
#include "parallel/device/lanes.h"

namespace spillway::parallel {

class GpuLanes final : public Lanes {
 public:
  using Kind = std::function<bool(const Instruction&)>;
  /// `work`: the stream in which instructions are performed, but for its queue, which is the lane's. `only_queued`, `leaves_on_queue`: as
  /// in only_queued.h.
  GpuLanes(
      const Stream& work, Kind only_queued, Kind leaves_on_queue = [](const Instruction&) { return false; });

  const GpuQueue* queue(Lane lane) const override { return queues_[static_cast<size_t>(lane)].get(); }

  /// When the queues are empty.
  void begin(const List& list) override;
  double perform(const Instruction& i, const std::function<double()>& work) override;
  void wait() override;
  /// Errors of the GPU are Error(io).
  void end(std::vector<Timing>& timings) override;

 private:
  using Clock = std::chrono::steady_clock;
  // Of one instruction.
  struct Moment {
    explicit Moment(Device gpu) : begin(gpu), end(gpu) {}
    const GpuEvent begin, end;
    bool queued = false;      // altogether: begin and end are moments of the queue
    bool ends_later = false;  // than the CPU's part, if it has one: end is
    double begin_us = 0;      // of what the CPU does
  };

  // Of one list.
  struct Round {
    explicit Round(Device gpu) : begin(gpu) {}
    const List* list = nullptr;
    const GpuEvent begin;
    Clock::time_point began;
    std::vector<std::unique_ptr<Moment>> moments;  // as many as its longest list so far has instructions
  };

  void wait_for_what_comes_before(const Instruction& i, const Moment& mine) const;
  double perform_timed(const Instruction& i, Moment& mine, const std::function<double()>& work);
  Round& round() const { return *rounds_.back(); }

  const Stream work_;
  const Kind only_queued_, leaves_on_queue_;
  std::vector<std::unique_ptr<GpuQueue>> queues_;
  std::deque<std::unique_ptr<Round>> rounds_;  // that have not been ended
  std::vector<std::unique_ptr<Round>> ended_;  // for others
};

}  // namespace spillway::parallel
