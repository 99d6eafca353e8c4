// What Steps mean to a rank, and the Land and Commit after them. The optimizer lane.
#pragma once
#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class Stepping {
 public:
  Stepping(Workplace& work, const StepUnderWay& step) : work_(work), step_(step) {}

  /// Returns the microseconds it waited for transfers.
  double step(const Instruction& i);
  /// Of a group, or where it names none of all.
  void land(const Instruction& i);
  void commit(const Instruction& i);

 private:
  Workplace& work_;
  const StepUnderWay& step_;
};

}  // namespace spillway::parallel
