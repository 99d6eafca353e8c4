// Runs the collectives among a rank's data-parallel ranks: the Gather (all-gather) and Exchange (reduce-scatter or all-reduce) instructions
// of a Program. Used by one lane.
#pragma once
#include <atomic>

#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class DataMeetings {
 public:
  DataMeetings(Workplace& work, const StepUnderWay& step) : work_(work), step_(step) {}

  /// All-gathers a group's weights. Before a use, each rank's shard goes into a slot on every rank; after the Steps, the stepped parts go
  /// into the full copy that every rank stores.
  void gather(const Instruction& i);
  /// Sums a gradient over the ranks in place: only this rank's shard of it where gradients are sharded, otherwise all of it.
  void exchange(const Instruction& i);

  /// Returns the bytes of everything that crossed the ranks so far.
  i64 bytes() const { return bytes_; }

 private:
  Dealt dealt(const Group& group, i64 tile_bytes) const { return {work_.sharding().parts(group, 1), tile_bytes}; }

  Workplace& work_;
  const StepUnderWay& step_;
  std::atomic<i64> bytes_{0};
};

}  // namespace spillway::parallel
