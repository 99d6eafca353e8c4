// Computes blocks, one tape a (block, micro-batch): what Forward, Backward and its two parts mean in a Program. The same code runs on the
// meta device to learn the bytes of activations before step 1. Used by one thread (the compute lane); memory comes from the stream in
// force.
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

/// What a block hands on, of a micro-batch of full size: [B, T, ...].
struct BlockOutput {
  Shape shape;
  DType dtype = DType::f32;
  i64 bytes() const { return shape.elems() * size_of(dtype); }
};

/// By what a block was run for.
using OpTimesOf = std::map<Op, autograd::OpTimes>;

/// Memory of an instruction's slots: what its block keeps, and what it reads from and hands on to another rank's.
struct BlockMemory {
  std::byte* spill = nullptr;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  double* loss = nullptr;  // on a GPU: where the last block puts its loss, so that nothing waits for it; else loss_sum() has it
};

class BlockRunner {
 public:
  /// `outputs`: by block; needed of those whose output crosses ranks.
  explicit BlockRunner(const nn::Sequential& model, std::vector<BlockOutput> outputs = {})
      : model_(model), first_trained_block_(model.first_trained_block()), outputs_(std::move(outputs)) {}

  /// What the coming blocks read: `batches` must outlive them.
  /// `cache`: what they go on from and add to, in Mode::generate; it must outlive them too.
  void begin(const std::vector<MicroBatch>& batches, nn::Mode mode, RandomKey random, double loss_factor, i64 logits_position = 0,
             nn::KeyValueCache* cache = nullptr);
  /// From now on, in Mode::train: an op whose result is not finite throws Error(numbers) that begins with `where` and names the block;
  /// empty: no more. `backward`: also of what flows back.
  void detect_anomalies(std::optional<std::string> where, bool backward) {
    anomalies_ = std::move(where);
    backward_anomalies_ = backward;
  }
  /// From now on, in Mode::train: adds the time of each op, which outlives this; null: no more.
  void time_ops(OpTimesOf* times) { op_times_ = times; }
  void forward(const Instruction& instruction, const BlockMemory& memory = {});
  /// A Backward, a BackwardInput or the BackwardWeight after it. Parameter gradients go to `sink`.
  void backward(const Instruction& instruction, autograd::GradientSink& sink, const BlockMemory& memory = {});

  /// What a block that was run forward keeps and could spill; 0 before the first trained one.
  i64 spillable_bytes(u16 block, u16 micro_batch) const;
  /// Of the block that was the last to run forward on the micro-batch.
  const Tensor& output(u16 micro_batch) const { return activation_.at(micro_batch); }

  /// The last block's output of a micro-batch (its loss sum, or logits); taken once.
  Tensor take_output(u16 micro_batch);
  size_t micro_batches() const { return losses_.size(); }
  /// Sum of token losses over the micro-batches run since begin(), added in their order; 0 where the last block is another rank's.
  double loss_sum() const { return std::accumulate(losses_.begin(), losses_.end(), 0.0); }

 private:
  struct Live {
    std::unique_ptr<SpillDoor> door;  // the tape's, or the kept input's of a recomputed block
    std::unique_ptr<autograd::Tape> tape;
    autograd::Variable input, output;
    std::optional<u64> kept_input;  // of a recomputed block, at the door
  };
  using Key = std::pair<u16, u16>;  // micro-batch, block
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

  // Gradients of a tape go to whoever backward() was called with.
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
  std::vector<double> losses_;  // by micro-batch
  Forwarding sink_;
  std::map<u16, Tensor> activation_;   // by micro-batch: output of the block that ran last forward
  std::map<u16, Tensor> gradient_;     // by micro-batch: gradient of the output of the next block to run backward
  std::map<u16, Tensor> router_load_;  // by micro-batch, from the first block's forward to the first trained one's backward
  std::map<Key, Live> live_;
};

}  // namespace spillway::parallel
