// A lane is the sequence of all instructions of one kind (computing, copying, exchanging) in a step; a rank runs them in order. Lanes
// says how an instruction is started on its lane, and on which GPU queue its work is put. Used by the threads of the executor.
#pragma once
#include <functional>
#include <vector>

#include "device/gpu_queue.h"
#include "parallel/program/program.h"
#include "parallel/program/timing.h"

namespace spillway::parallel {

class Lanes {
 public:
  virtual ~Lanes() = default;

  /// Prepares for a list of instructions, before any of them runs.
  virtual void begin(const List& list) = 0;
  /// Starts an instruction of the list that was begun last. Called on the thread of the instruction's lane,
  /// after the instructions that `i.after` names were started. Returns the result of `work`.
  virtual double perform(const Instruction& i, const std::function<double()>& work) = 0;
  /// Waits until all instructions of the list are done. Called after all of them have been started; then another list may begin.
  virtual void wait() = 0;
  /// Waits like wait(). Then sets `timings` to the times at which the instructions of a list ran: those of the earliest list for which
  /// end() has not been called yet.
  virtual void end(std::vector<Timing>& timings) = 0;
  /// Returns the queue (CUDA stream) on which a lane's work is put, or null on a CPU.
  virtual const GpuQueue* queue(Lane lane) const = 0;
};

/// Implements Lanes for a CPU. An instruction is done when perform() returns, so the executor's own order and times suffice.
class CpuLanes final : public Lanes {
 public:
  void begin(const List&) override {}
  double perform(const Instruction&, const std::function<double()>& work) override { return work(); }
  void wait() override {}
  void end(std::vector<Timing>&) override {}
  const GpuQueue* queue(Lane) const override { return nullptr; }
};

}  // namespace spillway::parallel
