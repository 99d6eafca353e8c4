// A GpuLanes holds the queues (CUDA streams) of a rank on its GPU, one for each lane, that is, for each kind of instruction that runs in
// order. Work that touches only GPU memory and page-locked host memory is merely put on the queue of its lane. Later instructions on other
// lanes then wait for it on the GPU, and the CPU goes on to launch the next instruction. Work in which the CPU takes part first waits on
// the CPU for the instructions before it. When it returns, it is done, or its last part is on the queue of its lane. Used by the threads of
// the executor.
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
  /// Makes the lanes of a rank. Instructions run in stream `work`, except that each lane has its own queue.
  /// `only_queued` and `leaves_on_queue` are described in only_queued.h.
  GpuLanes(
      const Stream& work, Kind only_queued, Kind leaves_on_queue = [](const Instruction&) { return false; });

  const GpuQueue* queue(Lane lane) const override { return queues_[static_cast<size_t>(lane)].get(); }

  /// Begins a list of instructions. May be called only when the queues are empty.
  void begin(const List& list) override;
  double perform(const Instruction& i, const std::function<double()>& work) override;
  void wait() override;
  /// Ends a list of instructions. Throws Error(io) if the GPU reports an error.
  void end(std::vector<Timing>& timings) override;

 private:
  using Clock = std::chrono::steady_clock;
  // When one instruction of the Program (the list of instructions of a step) began and ended on the GPU.
  struct Moment {
    explicit Moment(Device gpu) : begin(gpu), end(gpu) {}
    const GpuEvent begin, end;
    bool queued = false;      // the whole instruction is on the queue; `begin` and `end` are GPU events on it
    bool ends_later = false;  // the instruction ends on the queue after the CPU's part; `end` is a GPU event on that queue
    double begin_us = 0;      // time at which the CPU began the instruction
  };

  // Holds the events of one list of instructions that is being run.
  struct Round {
    explicit Round(Device gpu) : begin(gpu) {}
    const List* list = nullptr;
    const GpuEvent begin;
    Clock::time_point began;
    std::vector<std::unique_ptr<Moment>> moments;  // one Moment for each instruction of the longest list so far
  };

  void wait_for_what_comes_before(const Instruction& i, const Moment& mine) const;
  double perform_timed(const Instruction& i, Moment& mine, const std::function<double()>& work);
  Round& round() const { return *rounds_.back(); }

  const Stream work_;
  const Kind only_queued_, leaves_on_queue_;
  std::vector<std::unique_ptr<GpuQueue>> queues_;
  std::deque<std::unique_ptr<Round>> rounds_;  // rounds for which end() has not been called yet
  std::vector<std::unique_ptr<Round>> ended_;  // rounds that can be used again
};

}  // namespace spillway::parallel
