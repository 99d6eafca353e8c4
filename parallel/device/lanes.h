// The lanes of what a rank computes on: how an instruction that a lane has come to is begun, and what its work is put on. Used by the
// threads of the executor.
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

  /// Of a list that nothing of has run.
  virtual void begin(const List& list) = 0;
  /// Of the list begun last: once what it comes after has been begun, on its lane's thread. Returns what `work` does.
  virtual double perform(const Instruction& i, const std::function<double()>& work) = 0;
  /// When all have been begun: waits for them. Another list may begin then.
  virtual void wait() = 0;
  /// wait(), and says when the instructions of the first list that has not been ended ran.
  virtual void end(std::vector<Timing>& timings) = 0;
  /// What a lane's work is put on; null on a CPU.
  virtual const GpuQueue* queue(Lane lane) const = 0;
};

/// A CPU has done an instruction when it returns from it: the executor's order and times are all there is.
class CpuLanes final : public Lanes {
 public:
  void begin(const List&) override {}
  double perform(const Instruction&, const std::function<double()>& work) override { return work(); }
  void wait() override {}
  void end(std::vector<Timing>&) override {}
  const GpuQueue* queue(Lane) const override { return nullptr; }
};

}  // namespace spillway::parallel
