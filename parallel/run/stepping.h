// Carries out a rank's optimizer instructions: Step, and the Land and Commit after it. Used by the optimizer lane.
#pragma once
#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class Stepping {
 public:
  Stepping(Workplace& work, const StepUnderWay& step) : work_(work), step_(step) {}

  /// Returns the microseconds that it waited for transfers.
  double step(const Instruction& i);
  /// Waits until the Steps' writes have landed: those of the instruction's group, or of all groups if it names none.
  void land(const Instruction& i);
  void commit(const Instruction& i);

 private:
  Workplace& work_;
  const StepUnderWay& step_;
};

}  // namespace spillway::parallel
