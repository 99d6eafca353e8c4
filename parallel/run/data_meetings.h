// Runs the collectives of a rank with the other data-parallel ranks: the Gather instructions (all-gather) and Exchange instructions
// (reduce-scatter or all-reduce) of a training step. Used by one thread.
#pragma once
#include <atomic>

#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class DataMeetings {
 public:
  DataMeetings(Workplace& work, const StepUnderWay& step) : work_(work), step_(step) {}

  /// All-gathers a group's weights. Before sharded weights are used, every rank receives the shards of all ranks in device memory. If
  /// weights are stored whole but each rank updates only a part of them, every rank receives the updated parts after the update.
  void gather(const Instruction& i);
  /// Sums a gradient over the ranks in place. If gradients are sharded, only this rank's shard is summed, otherwise the whole gradient.
  void exchange(const Instruction& i);

  /// Returns the total size of the weights and gradients that gather() and exchange() have exchanged so far.
  i64 bytes() const { return bytes_; }

 private:
  Dealt dealt(const Group& group, i64 tile_bytes) const { return {work_.sharding().parts(group, 1), tile_bytes}; }

  Workplace& work_;
  const StepUnderWay& step_;
  std::atomic<i64> bytes_{0};
};

}  // namespace spillway::parallel
