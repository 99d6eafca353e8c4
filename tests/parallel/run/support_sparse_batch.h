// Makes training steps in which most gradients are zero, so that a single rank can
// reproduce, in the same order, a sum over ranks and micro-batches.
#pragma once
#include <algorithm>

#include "tests/parallel/run/support_run.h"

namespace spillway::test {

/// Returns a batch in which most micro-batches have only ignored targets, and so a zero gradient. Micro-batch n = k ranks + r of a step
/// has targets only if k = 0 or r = k mod ranks; so one micro-batch of each k above 0 has targets.
inline StepBatch sparse_batch(const RunOptions& o, i64 step, int rank, int ranks) {
  StepBatch batch = random_batch(o, step, rank);
  batch.counted_targets = 0;
  for (i64 j = 0; j < std::ssize(batch.micro_batches); ++j) {
    MicroBatch& m = batch.micro_batches[static_cast<size_t>(j)];
    const i64 n = j * o.ranks + rank, k = n / ranks;
    if (k > 0 && n % ranks != k % ranks) {
      std::fill_n(m.targets_BT.data<i32>(), m.targets_BT.elems(), kIgnoredTarget);
      m.counted_targets = 0;
    }
    batch.counted_targets += m.counted_targets;
  }
  return batch;
}

}  // namespace spillway::test
