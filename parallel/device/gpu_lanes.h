// A rank's queues (CUDA streams) on its GPU, one per lane. Work that touches only GPU memory and page-locked memory is just put on its
// lane's queue: later instructions on other lanes wait for it on the GPU, and the CPU goes on to launch the next one. Work in which the CPU
// takes part waits on the CPU for the instructions before it; when it returns, it is done or has left its last part on its lane's queue.
// Used by the threads of the executor.
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
  /// `work`: the stream in which instructions run, except that each lane uses its own queue. `only_queued`, `leaves_on_queue`: as in
  /// only_queued.h.
  GpuLanes(
      const Stream& work, Kind only_queued, Kind leaves_on_queue = [](const Instruction&) { return false; });

  const GpuQueue* queue(Lane lane) const override { return queues_[static_cast<size_t>(lane)].get(); }

  /// Called when the queues are empty.
  void begin(const List& list) override;
  double perform(const Instruction& i, const std::function<double()>& work) override;
  void wait() override;
  /// Throws Error(io) for errors of the GPU.
  void end(std::vector<Timing>& timings) override;

 private:
  using Clock = std::chrono::steady_clock;
  // The times of one instruction.
  struct Moment {
    explicit Moment(Device gpu) : begin(gpu), end(gpu) {}
    const GpuEvent begin, end;
    bool queued = false;      // the whole instruction is on the queue: begin and end are events there
    bool ends_later = false;  // the instruction ends on the queue, after the CPU's part: `end` is an event there
    double begin_us = 0;      // time at which the CPU began the instruction
  };

  // The events of one run of a list.
  struct Round {
    explicit Round(Device gpu) : begin(gpu) {}
    const List* list = nullptr;
    const GpuEvent begin;
    Clock::time_point began;
    std::vector<std::unique_ptr<Moment>> moments;  // as many as the longest list so far has instructions
  };

  void wait_for_what_comes_before(const Instruction& i, const Moment& mine) const;
  double perform_timed(const Instruction& i, Moment& mine, const std::function<double()>& work);
  Round& round() const { return *rounds_.back(); }

  const Stream work_;
  const Kind only_queued_, leaves_on_queue_;
  std::vector<std::unique_ptr<GpuQueue>> queues_;
  std::deque<std::unique_ptr<Round>> rounds_;  // rounds that have not been ended
  std::vector<std::unique_ptr<Round>> ended_;  // rounds to be reused
};

}  // namespace spillway::parallel
