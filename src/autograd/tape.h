// Reverse-mode differentiation. A Tape records ops while they run forward; backward() replays them in reverse, at once or in two parts:
// the inputs' gradients, which somebody waits for, and later those of the parameters (Qi et al., Zero Bubble Pipeline Parallelism, 2023).
// Several tapes may be alive at once (one per block and micro-batch in flight); a tape is used by one thread at a time. Invariants:
//   1. A closure holds saved-tensor tickets, scalars and shapes, never a Tensor: whatever it needs from forward goes through save(), which
//      is the door where activations spill, and is freed as soon as the op's backward has run, its last part if there are two.
//   2. A parameter's gradient goes to the GradientSink, whole, in wide_dtype of the parameter, exactly once for each (parameter, use);
//      other gradients have the type of what they are gradients of. Gradients of several uses are added in reverse order of use.
//   3. A gradient tensor is written in place only while nobody else holds it.
//   4. Saved values that were changed since (Storage::written) are never differentiated with: backward then throws before it has handed any
//      gradient over. What lies behind a SavedTensorDoor is the door's own.
#pragma once
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace spillway::autograd {

class Tape;

/// A tensor with a place on a tape, or a constant (slot < 0). Cheap to copy.
struct Variable {
  Tensor value;
  Tape* tape = nullptr;
  i32 slot = -1;
  bool weight = false;  // lies in a parameter's own storage: an op that saves it keeps nothing

  Variable() = default;
  Variable(Tensor constant) : value(std::move(constant)) {}  // NOLINT: a tensor is a constant variable
  Variable(Tensor v, Tape* t, i32 s, bool w = false) : value(std::move(v)), tape(t), slot(s), weight(w) {}
  bool needs_gradient() const { return slot >= 0; }
  const Shape& shape() const { return value.shape(); }
  DType dtype() const { return value.dtype(); }
  /// The eager way: seeds this one-element variable with 1 and runs the tape.
  void backward() const;
};

/// Where finished parameter gradients go.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  /// Contiguous memory of the parameter's shape and of `dtype`, which is wide_dtype of the parameter's (f32 for bf16), to be written whole:
  /// its old contents do not count.
  virtual Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) = 0;
  /// The target holds the finished gradient of this tape.
  virtual void done(u32 parameter, u8 use) = 0;
};

/// What becomes of a saved tensor between forward and backward. The default keeps it.
class SavedTensorDoor {
 public:
  virtual ~SavedTensorDoor() = default;
  virtual u64 pack(Tensor saved) = 0;
  /// Called once for each packed tensor, in reverse order of need.
  virtual Tensor unpack(u64 packed) = 0;
};

struct SavedTensor {
  i32 ticket = -1;
};

/// What an op's backward sees.
class Backward {
 public:
  /// Gradient of the op's output: contiguous, its shape.
  const Tensor& gradient() const { return gradient_; }
  /// In this part: of a backward in two, an op of both has a call for each.
  bool needs(int input) const;
  /// The input part has run this op before.
  bool again() const;
  /// Where to write the gradient of input `input`, whole; contiguous, its shape; of its type, of a parameter wide_dtype of it. Only if
  /// needs(input).
  Tensor target(int input);
  /// target(input) where needs(input), else an undefined tensor.
  Tensor target_if_needed(int input) { return needs(input) ? target(input) : Tensor(); }
  /// For an op that adds while it computes: the gradient that input `input` has from others, undefined if none or if it must be left. The
  /// op then writes the sum of both to target(), which is another tensor. Only if needs(input), before target().
  Tensor take_others(int input);
  /// Instead of target(): hands over a tensor that already is the gradient (it may be gradient() itself or a view of it). One of bf16 is
  /// widened for a parameter.
  void pass(int input, Tensor gradient);
  Tensor saved(SavedTensor ticket) const;

 private:
  friend class Tape;
  enum class Part : u8 { whole, input, weight };
  Backward(Tape& tape, Part part, const std::vector<i32>& inputs, const Tensor& gradient)
      : tape_(tape), part_(part), inputs_(inputs), gradient_(gradient) {}
  /// The input's slot, -1 if it gets no gradient in this part.
  i32 wanted(int input) const;
  void finish();
  Tape& tape_;
  const Part part_;
  const std::vector<i32>& inputs_;
  const Tensor& gradient_;
  std::vector<std::pair<i32, Tensor>> addends_;  // slot -> a further gradient to add to the one it has
};

using BackwardFunction = std::function<void(Backward&)>;

class Tape {
 public:
  explicit Tape(GradientSink* sink = nullptr, SavedTensorDoor* door = nullptr) : sink_(sink), door_(door) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// A leaf whose gradient is kept on the tape: take_gradient().
  Variable input(Tensor value);
  /// A leaf whose gradient goes to the sink. The same (parameter, use) is one leaf however often it is asked for.
  Variable parameter(Tensor value, u32 parameter, u8 use = 0);
  /// A parameter that is not trained: a constant.
  static Variable frozen(Tensor value) { return {std::move(value), nullptr, -1, true}; }

  /// Runs all recorded ops in reverse from `y`. `dy` undefined means 1 (one-element y). The tape is empty of ops afterwards; gradients of
  /// input() leaves stay until taken. Throws Error(bug) if y is not on this tape; Error(usage), with no gradient handed over, if a tensor
  /// that was saved for it has been modified in place, as PyTorch does.
  void backward(const Variable& y, Tensor dy = {});
  /// The same bits in two calls: this one gives the input() leaves their gradients and keeps what the parameters' need, of each op that has
  /// one its output's gradient and its saved tensors;
  void backward_input(const Variable& y, Tensor dy = {});
  /// and this one, once and at any later time, hands these over. Nothing is recorded on the tape between the two.
  void backward_weight();
  /// backward_weight() has something to do.
  bool has_weight_part() const { return !deferred_.empty(); }
  /// Undefined if nothing flowed to x.
  Tensor take_gradient(const Variable& x);

  /// Bytes of saved tensors not yet used up, here or behind the door; parameters are not counted, a tensor saved by two ops counts twice.
  i64 saved_bytes() const { return saved_bytes_; }

 private:
  friend class Recorder;
  friend class Backward;
  struct Slot {
    Shape shape;
    DType dtype;
    Tensor gradient;
    int pending = 0;  // ops still to contribute
    i64 parameter = -1;
    u8 use = 0;
    DType gradient_dtype() const { return parameter >= 0 ? wide_dtype(dtype) : dtype; }
  };
  struct Node {
    std::vector<i32> inputs;  // slots, -1: constant
    i32 output = -1;
    std::vector<i32> tickets;
    BackwardFunction backward;
    Tensor gradient;      // of the output, once it is whole
    const char* op = "";  // what an AnomalyGuard and an OpClock call it
    std::string layer;    // likewise; empty without one
  };
  struct Saved {
    Tensor tensor;
    u64 packed = 0;  // behind the door its ticket there, here the version of the tensor's storage when it was saved
    bool at_door = false;
    i64 counted_bytes = 0;
    bool modified() const { return !at_door && tensor.defined() && tensor.storage()->version() != packed; }
  };
  i32 new_slot(const Tensor& value);
  void seed(const Variable& y, Tensor dy);
  void check_unmodified(const Variable& y) const;
  Node take_last();
  bool has_inputs(const std::vector<i32>& inputs, bool parameters) const;
  void run(const Node& node, Backward::Part part);
  void check(const Node& node, const Backward& step) const;
  void release(const Node& node);
  void contributed(i32 slot);
  Tensor new_gradient(Slot& slot);

  GradientSink* sink_;
  SavedTensorDoor* door_;
  std::vector<Slot> slots_;
  std::vector<Node> nodes_;
  std::vector<Node> deferred_;  // to backward_weight(), in its order
  std::vector<Saved> saved_;
  std::map<std::pair<u32, u8>, i32> parameters_;
  i64 saved_bytes_ = 0;
};

/// Records one op. Usage, right under the op's forward:
///   Recorder r({x, w});
///   auto saved_x = r.save(x);
///   return r.output(y, [=](Backward& b) { … b.saved(saved_x) … b.target(0) … });
/// When no input needs a gradient nothing is saved or recorded and the output is a constant. `op`: what an AnomalyGuard (anomaly.h) and an
/// OpClock (op_clock.h) call it, the function it stands in; it outlives the tape.
class Recorder {
 public:
  Recorder(std::initializer_list<Variable> inputs, const char* op = __builtin_FUNCTION())
      : Recorder(std::span(inputs.begin(), inputs.size()), op) {}
  explicit Recorder(std::span<const Variable> inputs, const char* op = __builtin_FUNCTION());
  bool recording() const { return tape_ != nullptr; }
  SavedTensor save(const Variable& v);
  /// The op was told to write infinities: they are no anomaly.
  void expect_infinities() { infinities_ = true; }
  Variable output(Tensor value, BackwardFunction backward);

 private:
  const char* op_;
  bool infinities_ = false;
  Tape* tape_ = nullptr;
  std::vector<i32> inputs_;
  std::vector<i32> tickets_;
  std::vector<Variable> guarded_;  // the inputs, where an AnomalyGuard lives
};

}  // namespace spillway::autograd
