// A model is an ordered list of blocks, each a Module: forward(x, context) and the parameters it uses. Modules know nothing of buckets,
// tiers, ranks or schedules. A parameter shared by two blocks (a tied head) is one Parameter with two uses, numbered in block order.
#pragma once
#include <memory>
#include <vector>

#include "autograd/tape.h"
#include "nn/parameter.h"
#include "tensor/batch.h"

namespace spillway::nn {

using autograd::Variable;

enum class Mode {
  train,     // dropout on; the last block returns the loss
  evaluate,  // dropout off; the last block returns the loss
  generate,  // dropout off; the last block returns logits [B, V] (wide_dtype) of the position Context::logits_position
};

class KeyValueCache;

/// What a block's forward may read besides its input.
struct Context {
  Mode mode = Mode::train;
  const MicroBatch* batch = nullptr;
  autograd::Tape* tape = nullptr;  // null: nothing is recorded
  RandomKey random;                // of this run; layers derive theirs by purpose and name
  double loss_factor =
      1;  // loss scale / counted targets of the step: multiplies the loss's gradient, not its value; rounded once to the model's type
  i64 logits_position = 0;
  KeyValueCache* cache = nullptr;  // Mode::generate: the batch goes on from what lies there; null: rows begin with it
  u16 block = 0;                   // its number, for the cache
  bool keep_logits = false;        // all of them, from a head's forward to its backward, however many; else as ops::LogitsMemory has it
  Tensor router_load_2E;           // Mode::train, of a model with a router loss: of this micro-batch, to be added to (ops::RouterLoad)
  bool recomputing = false;        // this forward repeats one of this micro-batch for its backward: the router's load is counted

  /// The parameter as a variable: a leaf of the tape, or a constant when it is frozen or there is no tape. `use` numbers the blocks that
  /// share a parameter.
  Variable use(const Parameter& parameter, u8 use = 0) const;
};

struct ParameterUse {
  std::shared_ptr<Parameter> parameter;
  u8 use = 0;
};

class Module {
 public:
  virtual ~Module() = default;
  /// `x` of the first block is undefined: it reads batch->tokens_BT. The last block returns the sum of token losses as one f64 (train,
  /// evaluate) whose gradient is that of loss_factor times the sum.
  virtual Variable forward(const Variable& x, const Context& context) const = 0;
  /// Every parameter forward() reads, in a fixed order.
  virtual std::vector<ParameterUse> parameters() const = 0;
  /// False where its backward needs none of their values: an embedding's spreads the gradient over the rows that were looked up.
  virtual bool backward_reads_parameters() const { return true; }
  /// False where the gradients of the parameters alone (a backward's second part) need none: a product's is made of its input and of its
  /// output's gradient.
  virtual bool weight_gradients_read_parameters() const { return backward_reads_parameters(); }
  /// Bytes of the logits that its forward makes of so many rows (tokens) and its backward, each part of one in two, makes again unless
  /// Context::keep_logits; 0: of none. On the device of the stream in force.
  virtual i64 logits_again_bytes(i64 rows) const { return static_cast<void>(rows), 0; }
};

/// Blocks in order, and all parameters by id (in order of first use).
struct Sequential {
  std::vector<std::unique_ptr<Module>> blocks;
  std::vector<std::shared_ptr<Parameter>> parameters;
  i64 router_loss_experts = 0;  // above 0: so many experts of each layer that has some are evened out by a loss
  Shape image_CHW;              // what the first block reads of a sample, in the first parameter's type; of rank 0: a row of tokens

  /// Adds a block; parameters not seen before get the next ids. Throws Error(bug), the model unchanged, when a parameter's uses are not
  /// 0, 1, 2 … in block order (one use a block) or when two parameters bear one name.
  void push(std::unique_ptr<Module> block);
  /// Number of blocks that use the parameter.
  int uses(u32 parameter) const;
  /// Elements of all parameters, a shared one counted once, running statistics not at all.
  i64 parameter_elems() const;
  /// The first block that uses a parameter which is not frozen: nothing flows back beyond it. The number of blocks if there is none.
  size_t first_trained_block() const;
  bool reads_images() const { return image_CHW.rank() > 0; }
};

/// What the model reads, of so many rows, uninitialized, on the stream in force. Images have one position, their class.
MicroBatch empty_batch(const Sequential& model, i64 rows, i64 positions);

}  // namespace spillway::nn
