// Carries out a rank's optimizer instructions: Step, Land and Commit. Used by the optimizer thread.
#pragma once
#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class Stepping {
 public:
  Stepping(Workplace& work, const StepUnderWay& step) : work_(work), step_(step) {}

  /// Runs an optimizer Step. Returns the microseconds for which the Step waited for transfers.
  double step(const Instruction& i);
  /// Waits until writes of optimizer Steps are complete: those of the instruction's group, or those of all groups if the instruction names
  /// none.
  void land(const Instruction& i);
  void commit(const Instruction& i);

 private:
  Workplace& work_;
  const StepUnderWay& step_;
};

}  // namespace spillway::parallel
