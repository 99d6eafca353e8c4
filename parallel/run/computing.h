// What a rank computes: blocks forward and backward on micro-batches, and sums of gradients. load() is called on the data lane, the rest on
// the compute lane or between lists.
#pragma once
#include "nn/key_value_cache.h"
#include "parallel/blocks/accumulator.h"
#include "parallel/blocks/block_runner.h"
#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class Computing {
 public:
  Computing(const nn::Sequential& model, Workplace& work, StepUnderWay& step);

  /// The step's micro-batches; all data-parallel ranks come to it together.
  void load();
  void forward(const Instruction& i);
  /// A Backward, or one of its two parts.
  void backward(const Instruction& i);
  /// An Accumulate or AddTied.
  void add_gradients(const Instruction& i);

  /// Of this rank's micro-batches, in their order; 0 where the last block is another rank's.
  double loss_sum();

  /// A micro-batch that no step trains on; one of the two below ends it.
  void begin_without_training(const MicroBatch& batch, nn::Mode mode, i64 position);
  /// Likewise in Mode::generate, for its last position, with the cache: after the positions up to `begin` that lie there.
  void begin_with_cache(const MicroBatch& batch, i64 begin);
  /// As loss_sum().
  double take_loss();
  /// What the last block made, where the CPU reads it; undefined where that is another rank's.
  Tensor take_output();

 private:
  BlockMemory memory(const Instruction& i) const;
  void take_in(const MicroBatch& batch);

  Workplace& work_;
  StepUnderWay& step_;
  BlockRunner runner_;
  Accumulator accumulator_;
  std::vector<MicroBatch> forward_batch_;  // without training
  std::optional<nn::KeyValueCache> cache_;
};

}  // namespace spillway::parallel
