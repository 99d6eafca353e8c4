// Carries out a rank's optimizer instructions: Step (the update of a bucket), Land (waiting for writes) and Commit. Used by the optimizer
// thread.
#pragma once
#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class Stepping {
 public:
  Stepping(Workplace& work, const StepUnderWay& step) : work_(work), step_(step) {}

  /// Makes the optimizer update of a bucket. Returns the microseconds for which the update waited for transfers.
  double step(const Instruction& i);
  /// Waits until writes of optimizer updates are complete: the writes of the instruction's group, or of all groups if the instruction names
  /// none.
  void land(const Instruction& i);
  void commit(const Instruction& i);

 private:
  Workplace& work_;
  const StepUnderWay& step_;
};

}  // namespace spillway::parallel
