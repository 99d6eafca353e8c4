// The forward of a block that is written in Python, for one micro-batch. While it runs, the operations of its thread compute on the run's
// device, with the run's threads and memory, and are recorded on the tape of the run (the record that backward replays); they take no turn
// (turn.h), so that the ranks of a process compute side by side. Tensors that the forward makes end with it: their memory belongs to the
// run, which decides what is kept for backward. Before the first step a block also runs on tensors without values, to measure its memory.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"

namespace spillway::python {

using autograd::Variable;
struct Leaf;

/// The value of a Tensor that exists only in a block's forward.
class InBlock {
 public:
  virtual ~InBlock() = default;
  /// Returns the value in the forward that runs on this thread. Throws Error(usage) elsewhere. Must be called under the GIL.
  virtual const Variable& variable() const = 0;
};

/// A Parameter of Python. It is identified by its address: blocks that declare the same object share it. In the forward of a block it
/// stands for a parameter of the run; elsewhere it has a separate value, which is initialized when it is first used. Touched only under the
/// GIL.
struct Declared final : InBlock {
  Shape shape;
  nn::Initializer init;
  bool of_ids = false;
  DType dtype = DType::f32;    // the type of the value outside of a forward
  RandomKey key;               // the random key with which the value outside of a forward is initialized
  mutable Variable own;        // the value outside of a forward; undefined until it is first used
  std::shared_ptr<Leaf> leaf;  // the leaf of the value outside of a forward
  bool trainable() const;      // returns whether a gradient is computed for the parameter
  void draw() const;
  const Variable& variable() const override;
};

/// The declared parameters of a block, with the parameters of the run that they stand for.
struct BlockParameter {
  std::shared_ptr<const Declared> declared;
  nn::ParameterUse use;
};

class Pass : public std::enable_shared_from_this<Pass> {
 public:
  /// Prepares the forward of one block. The arguments must outlive the forward.
  Pass(const std::string& block, const std::vector<BlockParameter>& parameters, const Variable& input, const nn::Context& context);
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// Returns the pass that runs on this thread; null outside of a block's forward.
  static Pass* current();
  /// Makes this the thread's pass until end(), after which its tensors have no values.
  void begin();
  void end();

  /// Returns the name of the block.
  const std::string& block() const { return block_; }
  /// Returns the context that the block may read. Throws Error(usage) if this pass does not run on this thread.
  const nn::Context& context() const;
  /// Wraps a variable as the value of a Python Tensor that exists only in this pass, the forward of one block.
  std::shared_ptr<const InBlock> hold(Variable v);
  /// Returns the parameter as a variable of the tape. Throws Error(usage) if the block did not declare it.
  const Variable& parameter(const Declared& declared);
  /// Must be called when an operation reads the variable.
  void read(const Variable& v);
  /// Returns whether an operation read the block's input. An input for which no gradient is wanted counts as read.
  bool read_input() const { return read_input_; }
  /// Throws Error(usage) if forward did not use one of the trained parameters that the block declares: that parameter would get no
  /// gradient.
  void check_all_used() const;
  /// Returns `t`, or a copy of it on the device of the pass.
  static Tensor brought(const Tensor& t);
  /// Returns a copy of the values in host memory that does not end with the pass. Throws Error(usage) for a tensor without values.
  Tensor values(const Tensor& t) const;
  /// Returns the key of the next dropout of this forward. It is the same when the forward is repeated.
  RandomKey next_dropout();

 private:
  struct Held;
  const std::string& block_;
  const std::vector<BlockParameter>& parameters_;
  const i32 input_slot_;
  bool read_input_;
  const nn::Context* context_;  // the block's context; null once the pass has ended
  std::map<const Declared*, Variable> bound_;
  std::vector<std::weak_ptr<Held>> held_;
  int dropouts_ = 0;
};

}  // namespace spillway::python
