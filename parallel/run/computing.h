// Does the computing of a rank: the forward and backward of blocks on micro-batches, and the sums of gradients. load() is called on the
// data thread. All other functions are called on the compute thread, or while no list runs.
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

  /// Loads the step's micro-batches and copies them to the device. load() is a collective of the data-parallel ranks.
  void load();
  void forward(const Instruction& i);
  /// Runs a Backward, BackwardInput or BackwardWeight instruction.
  void backward(const Instruction& i);
  /// Runs an Accumulate or AddTied instruction.
  void add_gradients(const Instruction& i);

  /// Returns the sum of the losses of this rank's micro-batches, added in their order, or 0 if another rank holds the last block.
  double loss_sum();

  /// Begins a forward pass of one micro-batch without training. take_loss() or take_output() ends the pass.
  void begin_without_training(const MicroBatch& batch, nn::Mode mode, i64 position);
  /// Begins a forward pass in Mode::generate that uses the key/value cache and outputs the batch's last position. The batch's positions are
  /// added to the cache from position `begin` on, after those of earlier calls.
  void begin_with_cache(const MicroBatch& batch, i64 begin);
  /// Ends the forward pass and returns the loss, as loss_sum() does.
  double take_loss();
  /// Ends the forward pass and returns the last block's output in memory that the CPU can
  /// read. Returns an undefined tensor if another rank holds the last block.
  Tensor take_output();

 private:
  BlockMemory memory(const Instruction& i) const;
  void take_in(const MicroBatch& batch);

  Workplace& work_;
  StepUnderWay& step_;
  BlockRunner runner_;
  Accumulator accumulator_;
  std::vector<MicroBatch> forward_batch_;  // the only micro-batch of a forward pass without training
  std::optional<nn::KeyValueCache> cache_;
};

}  // namespace spillway::parallel
