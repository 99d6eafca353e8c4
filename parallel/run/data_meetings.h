// Where a rank meets its data-parallel ranks: a Program's Gathers and Exchanges. One lane.
#pragma once
#include <atomic>

#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class DataMeetings {
 public:
  DataMeetings(Workplace& work, const StepUnderWay& step) : work_(work), step_(step) {}

  /// Into a slot from where each rank has its part; or, after the Steps, into what every rank has whole.
  void gather(const Instruction& i);
  /// A gradient's sum, in place: of this rank's part, or of all where nothing is split.
  void exchange(const Instruction& i);

  /// Of all that crossed the ranks so far.
  i64 bytes() const { return bytes_; }

 private:
  Dealt dealt(const Group& group, i64 tile_bytes) const { return {work_.sharding().parts(group, 1), tile_bytes}; }

  Workplace& work_;
  const StepUnderWay& step_;
  std::atomic<i64> bytes_{0};
};

}  // namespace spillway::parallel
