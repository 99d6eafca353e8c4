// Carries out a step's Fetch and Evict instructions, which copy data between the tier in which it is stored (GPU, host memory, nvme) and
// the rank's device. Thread-safe in the same way as DeviceCopies.
#pragma once
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class Moves {
 public:
  explicit Moves(Workplace& work) : work_(work) {}

  /// fetch() and evict() return the microseconds for which they waited for transfers.
  double fetch(const Instruction& i);
  double evict(const Instruction& i);

 private:
  offload::Blob& resting(const Instruction& i) const;

  Workplace& work_;
};

}  // namespace spillway::parallel
