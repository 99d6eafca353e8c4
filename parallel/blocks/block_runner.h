// Computes blocks, with one tape per (block, micro-batch): it implements a Program's Forward, Backward and the two parts of a split
// backward. The same code runs on the meta device to find the bytes of activations before step 1. Used by one thread (the compute lane);
// memory comes from the current stream.
#pragma once
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "autograd/anomaly.h"
#include "autograd/op_clock.h"
#include "nn/module.h"
#include "parallel/blocks/spill_door.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

/// A block's output for a micro-batch of full size: [B, T, ...].
struct BlockOutput {
  Shape shape;
  DType dtype = DType::f32;
  i64 bytes() const { return shape.elems() * size_of(dtype); }
};

/// Times of ops by the instruction for which a block ran.
using OpTimesOf = std::map<Op, autograd::OpTimes>;

/// Memory of an instruction's slots: what its block keeps for backward, what it reads from another rank, and what it passes to one.
struct BlockMemory {
  std::byte* spill = nullptr;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  double* loss = nullptr;  // on a GPU: where the last block writes its loss, so that nothing waits for it; null: loss_sum() has it
};

class BlockRunner {
 public:
  /// `outputs`: by block; needed for blocks whose output goes to another rank.
  explicit BlockRunner(const nn::Sequential& model, std::vector<BlockOutput> outputs = {})
      : model_(model), first_trained_block_(model.first_trained_block()), outputs_(std::move(outputs)) {}

  /// Sets what the following blocks work on. `batches` must outlive them. In Mode::generate, `cache` is the key/value cache that they read
  /// and extend; it must outlive them too.
  void begin(const std::vector<MicroBatch>& batches, nn::Mode mode, RandomKey random, double loss_factor, i64 logits_position = 0,
             nn::KeyValueCache* cache = nullptr);
  /// From now on, in Mode::train, an op whose result is not finite throws Error(numbers), which begins with `where` and names the block.
  /// Empty turns this off. `backward`: gradients are checked too.
  void detect_anomalies(std::optional<std::string> where, bool backward) {
    anomalies_ = std::move(where);
    backward_anomalies_ = backward;
  }
  /// From now on, in Mode::train, adds the time of each op to `times`, which must outlive this object. Null turns this off.
  void time_ops(OpTimesOf* times) { op_times_ = times; }
  void forward(const Instruction& instruction, const BlockMemory& memory = {});
  /// Runs a Backward, a BackwardInput, or the BackwardWeight that follows it. Gradients of parameters go to `sink`.
  void backward(const Instruction& instruction, autograd::GradientSink& sink, const BlockMemory& memory = {});

  /// Returns the bytes that a block keeps after its forward and that could be offloaded; 0 for blocks before the first trained one.
  i64 spillable_bytes(u16 block, u16 micro_batch) const;
  /// Returns the output of the block that ran forward last on the micro-batch.
  const Tensor& output(u16 micro_batch) const { return activation_.at(micro_batch); }

  /// Returns the last block's output for a micro-batch (its loss sum, or logits). It can be taken once.
  Tensor take_output(u16 micro_batch);
  size_t micro_batches() const { return losses_.size(); }
  /// Returns the sum of token losses over the micro-batches run since begin(), added in their order; 0 if the last block is on another
  /// rank.
  double loss_sum() const { return std::accumulate(losses_.begin(), losses_.end(), 0.0); }

 private:
  struct Live {
    std::unique_ptr<SpillDoor> door;  // holds the tape's saved tensors, or the kept input of a block that is recomputed
    std::unique_ptr<autograd::Tape> tape;
    autograd::Variable input, output;
    std::optional<u64> kept_input;  // if the block is recomputed: its input's ticket at the door
  };
  using Key = std::pair<u16, u16>;  // (micro-batch, block)
  nn::Context context(const Instruction& i, autograd::Tape* tape) const;
  std::optional<autograd::AnomalyGuard> guard(const Instruction& i) const;
  std::optional<autograd::OpClock> clock(const Instruction& i) const;
  void record(Live& live, Tensor input, const Instruction& i);
  void backward_weight(const Instruction& i, autograd::GradientSink& sink);
  Tensor take_input(const Instruction& i, const BlockMemory& memory);
  Tensor take_output_gradient(const Instruction& i, const BlockMemory& memory);
  Tensor received(u16 block, const std::byte* from) const;
  static void keep_input(Live& live, Tensor input);
  static Tensor take_kept_input(Live& live);

  // Passes the gradients of a tape on to the sink of the current backward() call.
  struct Forwarding final : autograd::GradientSink {
    autograd::GradientSink* to = nullptr;
    Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) override { return to->target(parameter, use, shape, dtype); }
    void done(u32 parameter, u8 use) override { to->done(parameter, use); }
  };

  const nn::Sequential& model_;
  const size_t first_trained_block_;
  const std::vector<BlockOutput> outputs_;
  const std::vector<MicroBatch>* batches_ = nullptr;
  nn::Mode mode_ = nn::Mode::train;
  RandomKey random_;
  double loss_factor_ = 1;
  i64 logits_position_ = 0;
  nn::KeyValueCache* cache_ = nullptr;
  std::optional<std::string> anomalies_;
  bool backward_anomalies_ = false;
  OpTimesOf* op_times_ = nullptr;
  std::vector<double> losses_;  // loss of each micro-batch
  Forwarding sink_;
  std::map<u16, Tensor> activation_;   // by micro-batch: output of the block that ran forward last
  std::map<u16, Tensor> gradient_;     // by micro-batch: gradient of the output of the next block to run backward
  std::map<u16, Tensor> router_load_;  // by micro-batch: load of the experts, from block 0's forward to the first trained block's backward
  std::map<Key, Live> live_;
};

}  // namespace spillway::parallel
