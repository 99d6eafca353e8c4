// A BlockRunner carries out the Forward and Backward instructions of a training step, and the two parts of a split backward. It keeps one
// tape (the record of a forward from which gradients are computed) for each block and micro-batch. The same code runs on the meta device
// before step 1, to find how many bytes the activations take. Used by one thread (the one that computes blocks); memory comes from the
// current stream.
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

/// Describes the shape and dtype of a block's output for a micro-batch of full size: [B, T, ...].
struct BlockOutput {
  Shape shape;
  DType dtype = DType::f32;
  i64 bytes() const { return shape.elems() * size_of(dtype); }
};

/// The times of ops, for each kind of instruction in which they ran.
using OpTimesOf = std::map<Op, autograd::OpTimes>;

/// Pointers to the memory that an instruction uses: for tensors that its block keeps for the backward, for tensors that another rank has
/// sent, and for tensors to send to another rank.
struct BlockMemory {
  std::byte* spill = nullptr;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  // Where the last block writes its loss on a GPU, so that the CPU need not wait for it. If it is null, loss_sum() adds up the losses
  // itself.
  double* loss = nullptr;
};

class BlockRunner {
 public:
  /// `outputs` describes the output of each block. It is needed only if some block's output goes to another rank.
  explicit BlockRunner(const nn::Sequential& model, std::vector<BlockOutput> outputs = {})
      : model_(model), first_trained_block_(model.first_trained_block()), outputs_(std::move(outputs)) {}

  /// Sets the data that the blocks work on from now on. `batches` must stay valid while the blocks run. In Mode::generate, the blocks
  /// read and extend the key/value cache `cache`, which must stay valid too.
  void begin(const std::vector<MicroBatch>& batches, nn::Mode mode, RandomKey random, double loss_factor, i64 logits_position = 0,
             nn::KeyValueCache* cache = nullptr);
  /// From now on, an op in Mode::train throws Error(numbers) if its result is not finite. The message begins with `where` and names the
  /// block. An empty `where` turns these checks off. If `backward`, gradients are checked too.
  void detect_anomalies(std::optional<std::string> where, bool backward) {
    anomalies_ = std::move(where);
    backward_anomalies_ = backward;
  }
  /// Adds the time of each op in Mode::train to `times`, which must outlive this object. A null `times` turns that off.
  void time_ops(OpTimesOf* times) { op_times_ = times; }
  void forward(const Instruction& instruction, const BlockMemory& memory = {});
  /// Runs the backward of a block: a Backward, a BackwardInput (gradient of the input only), or the BackwardWeight (gradients of the
  /// parameters) that follows it. Gradients of parameters go to `sink`.
  void backward(const Instruction& instruction, autograd::GradientSink& sink, const BlockMemory& memory = {});

  /// Returns how many of the bytes that the block keeps after its forward could be offloaded, or 0 before the first trained block.
  i64 spillable_bytes(u16 block, u16 micro_batch) const;
  /// Returns the output of the block whose forward was the last one to run on this micro-batch.
  const Tensor& output(u16 micro_batch) const { return activation_.at(micro_batch); }

  /// Returns the last block's output for a micro-batch: the sum of its losses, or logits. The output can be taken only once.
  Tensor take_output(u16 micro_batch);
  size_t micro_batches() const { return losses_.size(); }
  /// Returns the sum of the token losses of all micro-batches since begin(), added in order, or 0 if another rank holds the last block.
  double loss_sum() const { return std::accumulate(losses_.begin(), losses_.end(), 0.0); }

 private:
  struct Live {
    std::unique_ptr<SpillDoor> door;  // holds the tensors that the tape has saved, or the block's input if the block is recomputed
    std::unique_ptr<autograd::Tape> tape;
    autograd::Variable input, output;
    std::optional<u64> kept_input;  // the number under which `door` keeps the block's input; set only if the block is recomputed
  };
  using Key = std::pair<u16, u16>;  // a pair of micro-batch and block
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
  std::map<u16, Tensor> activation_;  // for each micro-batch: output of the block whose forward ran last
  std::map<u16, Tensor> gradient_;    // for each micro-batch: gradient of the output of the block whose backward runs next
  // Holds the load of the experts for each micro-batch, from block 0's forward to the first trained block's backward.
  std::map<u16, Tensor> router_load_;
  std::map<Key, Live> live_;
};

}  // namespace spillway::parallel
