// Exchanges messages with the other ranks of the pipeline: block outputs and their gradients, which lie on the device, and gradients and
// weights of groups that several of these ranks share. One thread sends and another receives; weights are sent and received on the thread
// that updates them.
#pragma once
#include <atomic>

#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class PipelineMessages {
 public:
  PipelineMessages(Workplace& work, const StepUnderWay& step) : work_(work), step_(step) {}

  void send(const Instruction& i);
  void receive(const Instruction& i);

  /// Returns the number of bytes that this object has sent so far.
  i64 bytes() const { return bytes_; }

 private:
  std::span<std::byte> message(const Instruction& i, const Slot& slot) const;
  void send_weights(const Instruction& i);
  void receive_weights(const Instruction& i);

  Workplace& work_;
  const StepUnderWay& step_;
  std::atomic<i64> bytes_{0};
};

}  // namespace spillway::parallel
