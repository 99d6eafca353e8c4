// Reverse-mode differentiation. A Tape records ops while they run forward; backward() replays them in reverse, either in one pass or in two
// parts: the gradients of the inputs, which another pipeline stage waits for, and later those of the parameters (Qi et al., Zero Bubble
// Pipeline Parallelism, 2023). Several tapes may be alive at once (one per block and micro-batch in flight); a tape is used by one thread
// at a time. Invariants:
//   1. The backward closure of an op holds tickets of saved tensors, scalars and shapes, never a Tensor. Whatever it needs from forward
//      goes through save(), where activations may be offloaded. A saved tensor is freed as soon as the op's backward has run (its last
//      part if there are two).
//   2. A parameter's gradient is handed to the GradientSink once it is complete, in wide_dtype of the parameter: once for each use, that
//      is, for each block that reads the parameter. Other gradients have the type of their tensor. If a tensor is read by several ops,
//      their gradients are added in reverse order of the reads.
//   3. A gradient tensor is written in place only while no other tensor shares its memory.
//   4. Saved values that were changed after save() (Storage::written) are never used: backward then throws before it has handed over any
//      gradient. The tape cannot check tensors that a SavedTensorDoor has packed; the SavedTensorDoor is responsible for them.
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

/// A variable is a tensor with a slot on a tape, or a constant (slot < 0). It is cheap to copy.
struct Variable {
  Tensor value;
  Tape* tape = nullptr;
  i32 slot = -1;
  bool weight = false;  // the value is a parameter's own storage, so saving it takes no memory

  Variable() = default;
  Variable(Tensor constant) : value(std::move(constant)) {}  // NOLINT: a tensor is a constant variable
  Variable(Tensor v, Tape* t, i32 s, bool w = false) : value(std::move(v)), tape(t), slot(s), weight(w) {}
  bool needs_gradient() const { return slot >= 0; }
  const Shape& shape() const { return value.shape(); }
  DType dtype() const { return value.dtype(); }
  /// Runs backward from this one-element variable with a gradient of 1.
  void backward() const;
};

/// The receiver of finished parameter gradients, which the user of a Tape supplies.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  /// Returns contiguous memory for a gradient, of the parameter's shape and of type `dtype`, which is wide_dtype of the parameter's type
  /// (f32 for bf16). The caller overwrites all of it, whatever its old contents.
  virtual Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) = 0;
  /// Tells the sink that the target now holds the finished gradient of this tape.
  virtual void done(u32 parameter, u8 use) = 0;
};

/// Stores saved tensors between forward and backward, for example by offloading
/// them. A tape without a SavedTensorDoor keeps the tensors themselves.
class SavedTensorDoor {
 public:
  virtual ~SavedTensorDoor() = default;
  virtual u64 pack(Tensor saved) = 0;
  /// Returns a packed tensor. The tape calls unpack() once for each packed
  /// tensor, in the order in which backward needs them (the last ops first).
  virtual Tensor unpack(u64 packed) = 0;
};

struct SavedTensor {
  i32 ticket = -1;
};

/// The interface that an op's backward function uses.
class Backward {
 public:
  /// Returns the gradient of the op's output. It is contiguous and has the output's shape.
  const Tensor& gradient() const { return gradient_; }
  /// Returns whether input `input` needs a gradient in this call. In a backward in two parts, an op with gradients in both parts is called
  /// once in each part.
  bool needs(int input) const;
  /// Returns whether this is the second call of the op's backward: the first part of a backward in two parts has already called it.
  bool again() const;
  /// Returns the memory to which the op writes the whole gradient of input `input`: contiguous and of the input's shape.
  /// Its type is that of the input; for a parameter it is wide_dtype of that type. Call target() only if needs(input).
  Tensor target(int input);
  /// Returns target(input) if needs(input), and an undefined tensor otherwise.
  Tensor target_if_needed(int input) { return needs(input) ? target(input) : Tensor(); }
  /// Returns the gradient that input `input` already has from other ops, for an op that can add to a gradient while it computes. The op
  /// then writes the sum to target(), which is another tensor. The result is undefined if the input has no such gradient, or if the tape
  /// adds it separately. Call take_others() only if needs(input), and before target().
  Tensor take_others(int input);
  /// Gives input `input` an existing tensor as its gradient, instead of a call of target(). The
  /// tensor may be gradient() itself or a view of it. For a parameter, a bf16 gradient is widened.
  void pass(int input, Tensor gradient);
  Tensor saved(SavedTensor ticket) const;

 private:
  friend class Tape;
  enum class Part : u8 { whole, input, weight };
  Backward(Tape& tape, Part part, const std::vector<i32>& inputs, const Tensor& gradient)
      : tape_(tape), part_(part), inputs_(inputs), gradient_(gradient) {}
  /// Returns the input's slot, or -1 if the input gets no gradient in this part of backward.
  i32 wanted(int input) const;
  void finish();
  Tape& tape_;
  const Part part_;
  const std::vector<i32>& inputs_;
  const Tensor& gradient_;
  std::vector<std::pair<i32, Tensor>> addends_;  // pairs of a slot and a further gradient to be added to the slot's gradient
};

using BackwardFunction = std::function<void(Backward&)>;

class Tape {
 public:
  explicit Tape(GradientSink* sink = nullptr, SavedTensorDoor* door = nullptr) : sink_(sink), door_(door) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// Creates a leaf whose gradient stays on the tape until take_gradient().
  Variable input(Tensor value);
  /// Creates a leaf whose gradient goes to the sink. `use` is the number of the block among those that share the parameter. Repeated calls
  /// for the same (parameter, use) return the same leaf.
  Variable parameter(Tensor value, u32 parameter, u8 use = 0);
  /// Returns a parameter that is not trained as a constant. No gradient is computed for a constant.
  static Variable frozen(Tensor value) { return {std::move(value), nullptr, -1, true}; }

  /// Runs all recorded ops in reverse from `y`. An undefined `dy` means 1 (y must then have one element). Afterwards the
  /// tape holds no ops; gradients of input() leaves stay until taken. Throws Error(bug) if y is not on this tape. Throws
  /// Error(usage), as PyTorch does, with no gradient handed over, if a tensor saved for backward has been modified in place.
  void backward(const Variable& y, Tensor dy = {});
  /// Runs the first of two parts of backward, which together give bitwise the gradients of backward(). This part computes the gradients of
  /// the input() leaves. It keeps what the parameter gradients need: for each op with parameters its saved tensors and the gradient of its
  /// output.
  void backward_input(const Variable& y, Tensor dy = {});
  /// Runs the second part of backward, which computes the parameter gradients and hands them to the sink. Call it
  /// once after backward_input(), at any later time; nothing may be recorded on the tape between the two calls.
  void backward_weight();
  /// Returns whether backward_weight() has something to do.
  bool has_weight_part() const { return !deferred_.empty(); }
  /// Returns the gradient of x and removes it from the tape. The result is undefined if no gradient reached x.
  Tensor take_gradient(const Variable& x);

  /// Returns the bytes of saved tensors that are still needed, whether the tape or a SavedTensorDoor
  /// keeps them. Parameters are not counted; a tensor that two ops saved counts twice.
  i64 saved_bytes() const { return saved_bytes_; }

 private:
  friend class Recorder;
  friend class Backward;
  struct Slot {
    Shape shape;
    DType dtype;
    Tensor gradient;
    int pending = 0;  // the number of ops that still contribute a gradient
    i64 parameter = -1;
    u8 use = 0;
    DType gradient_dtype() const { return parameter >= 0 ? wide_dtype(dtype) : dtype; }
  };
  struct Node {
    std::vector<i32> inputs;  // the slots of the inputs; -1 stands for a constant
    i32 output = -1;
    std::vector<i32> tickets;
    BackwardFunction backward;
    Tensor gradient;      // the gradient of the output, once it is complete
    const char* op = "";  // the op's name for an AnomalyGuard and an OpClock
    std::string layer;    // the op's layer for an AnomalyGuard; empty without one
  };
  struct Saved {
    Tensor tensor;
    // For a tensor that a SavedTensorDoor keeps, `packed` is what pack() returned.
    // For other tensors it is the version of the tensor's storage when it was saved.
    u64 packed = 0;
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
  std::vector<Node> deferred_;  // the ops that wait for backward_weight(), in its order
  std::vector<Saved> saved_;
  std::map<std::pair<u32, u8>, i32> parameters_;
  i64 saved_bytes_ = 0;
};

/// Records one op. Usage, right below the op's forward code:
///   Recorder r({x, w});
///   auto saved_x = r.save(x);
///   return r.output(y, [=](Backward& b) { … b.saved(saved_x) … b.target(0) … });
/// When no input needs a gradient, nothing is saved or recorded and the output is a constant. `op` is the op's name for an AnomalyGuard
/// (anomaly.h) and an OpClock (op_clock.h), by default the name of the calling function; the string must outlive the tape.
class Recorder {
 public:
  Recorder(std::initializer_list<Variable> inputs, const char* op = __builtin_FUNCTION())
      : Recorder(std::span(inputs.begin(), inputs.size()), op) {}
  explicit Recorder(std::span<const Variable> inputs, const char* op = __builtin_FUNCTION());
  bool recording() const { return tape_ != nullptr; }
  SavedTensor save(const Variable& v);
  /// Declares that the caller of the op asked for infinities in its result, so that an AnomalyGuard does not report them.
  void expect_infinities() { infinities_ = true; }
  Variable output(Tensor value, BackwardFunction backward);

 private:
  const char* op_;
  bool infinities_ = false;
  Tape* tape_ = nullptr;
  std::vector<i32> inputs_;
  std::vector<i32> tickets_;
  std::vector<Variable> guarded_;  // the inputs, if an AnomalyGuard is active
};

}  // namespace spillway::autograd
