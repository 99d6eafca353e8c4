// Defines Module and Sequential. A model is an ordered list of blocks. Each block is a Module: forward(x,
// context) and the parameters that it uses. Modules know nothing of memory tiers, ranks or schedules. A
// parameter shared by two blocks (a tied head) is one Parameter with two uses, numbered in block order.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "autograd/tape.h"
#include "nn/parameter.h"
#include "tensor/batch.h"

namespace spillway::nn {

using autograd::Variable;

enum class Mode {
  train,     // dropout is on; the last block returns the loss
  evaluate,  // dropout is off; the last block returns the loss
  generate,  // dropout is off; the last block returns logits [B, V] (wide_dtype) of position Context::logits_position
};

class KeyValueCache;

/// The values that a block's forward may read besides its input.
struct Context {
  Mode mode = Mode::train;
  const MicroBatch* batch = nullptr;
  autograd::Tape* tape = nullptr;  // the tape; if it is null, nothing is recorded
  RandomKey random;                // the random key of this run; layers derive their own by purpose and name
  // The factor of the loss's gradient, not of its value: the loss scale divided by the number of
  // targets of the step that contribute to the loss. The factor is rounded once, to the model's type.
  double loss_factor = 1;
  i64 logits_position = 0;
  // The cache of keys and values in Mode::generate. The batch's tokens follow the positions that the cache holds. If it is null, each
  // sequence of the batch begins at position 0.
  KeyValueCache* cache = nullptr;
  u16 block = 0;             // the index of the block that runs, which selects the block's part of the cache
  bool keep_logits = false;  // whether a head keeps all logits from forward to backward; otherwise ops::LogitsMemory decides
  // Whether the last block returns the logits of all positions, [B, T, V] (or [N, classes]) in the model's type, instead of the loss, in
  // modes train and evaluate. The logits are recorded on the tape, so that the caller can compute a loss from them.
  bool all_logits = false;
  // The experts' load of this micro-batch, to which forward adds in Mode::train with a router loss (ops::RouterLoad).
  Tensor router_load_2E;
  bool recomputing = false;  // true if forward is repeated for backward: the router's load must then not be counted again

  /// Returns the parameter as a variable: a leaf of the tape, or a constant if the parameter is frozen or there is no tape. `use` numbers
  /// the blocks that share a parameter.
  Variable use(const Parameter& parameter, u8 use = 0) const;
  /// Returns the sum of losses[B, ...] over the rows that hold a sample, as one f64. The last block of a model that
  /// declares its own inputs calls loss() in modes train and evaluate. The gradient is the one that Module::forward()
  /// requires. Throws Error(usage) for a model that reads tokens or images, whose padding the targets mark.
  Variable loss(const Variable& losses) const;
};

struct ParameterUse {
  std::shared_ptr<Parameter> parameter;
  u8 use = 0;
};

class Module {
 public:
  virtual ~Module() = default;
  /// Computes the block's output. The first block gets an undefined `x` and reads the batch of the context. In modes train and
  /// evaluate the last block returns the sum of token losses as one f64, whose gradient is that of loss_factor times the sum.
  virtual Variable forward(const Variable& x, const Context& context) const = 0;
  /// Returns every parameter that forward() reads, in an order that is always the same.
  virtual std::vector<ParameterUse> parameters() const = 0;
  /// Returns false if backward does not need the values of the parameters. An embedding's backward, for example, only adds the gradient to
  /// the rows that were looked up.
  virtual bool backward_reads_parameters() const { return true; }
  /// Returns false if the gradients of the parameters (the second part of backward) do not need the values of the parameters.
  /// A matrix product, for example, computes its weight's gradient from its input and the gradient of its output.
  virtual bool weight_gradients_read_parameters() const { return backward_reads_parameters(); }
  /// Returns the bytes of the logits that forward computes for `rows` tokens on the current stream's device and that backward
  /// recomputes (in each part of a backward in two parts). Returns 0 if there are none. Context::keep_logits avoids the recomputation.
  virtual i64 logits_again_bytes(i64 rows) const { return static_cast<void>(rows), 0; }
};

/// A model: its blocks in order, and all parameters by id (in order of first use).
struct Sequential {
  std::vector<std::unique_ptr<Module>> blocks;
  std::vector<std::shared_ptr<Parameter>> parameters;
  i64 router_loss_experts = 0;     // the number of experts per layer whose load a router loss balances; 0 without a router loss
  Shape image_CHW;                 // the shape of an input image, of the type of the first parameter; rank 0 if the model reads no images
  std::vector<InputShape> inputs;  // the tensors that the model reads for each sample (MicroBatch::inputs); empty for tokens or images

  /// If set, is called before the first step with the device and the bytes of its memory that the plan leaves to another library, which
  /// computes blocks of the model (device/foreign_memory.h). The library must not take more. May throw.
  std::function<void(Device device, i64 bytes)> limit_foreign_memory;

  /// Appends a block; parameters not seen before get the next ids. Throws Error(bug), leaving the model unchanged, when the blocks that
  /// share a parameter do not number their use of it 0, 1, 2 … in block order or when two parameters have the same name.
  void push(std::unique_ptr<Module> block);
  /// Returns the number of blocks that use the parameter.
  int uses(u32 parameter) const;
  /// Returns the number of elements of all parameters. A shared parameter counts once; running statistics do not count.
  i64 parameter_elems() const;
  /// Returns the index of the first block that uses a trained (not frozen) parameter; no
  /// gradient flows back beyond that block. Returns the number of blocks if no block uses one.
  size_t first_trained_block() const;
  bool reads_images() const { return image_CHW.rank() > 0; }
  bool reads_tokens() const { return !reads_images() && inputs.empty(); }
};

/// Creates an uninitialised micro-batch of `rows` sequences (or images or samples) for the model's inputs in memory of the current stream.
/// For a model that reads images or declares its own inputs, `positions` must be 1, because such a sample has one target.
MicroBatch empty_batch(const Sequential& model, i64 rows, i64 positions);

}  // namespace spillway::nn
