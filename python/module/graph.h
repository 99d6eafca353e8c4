// Python's view of tensors with gradients: PyTorch's requires_grad and backward() on top of the library's tapes (a tape is the record of
// operations that backward replays). An operation on a tensor that requires a gradient is recorded on the thread's graph, which lives as
// long as a tensor that was computed on it; backward() traverses it once. Only the thread that has the turn (turn.h) touches graphs, leaves
// and weights, and only a thread with the GIL touches an Array's fields: before its turn a thread copies the Arrays that it computes with.
// Invariant: an Array that is recorded on a tape keeps its graph alive.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "nn/eager.h"
#include "python/module/arguments.h"
#include "python/module/errors.h"
#include "python/module/pass.h"
#include "python/module/runtime.h"

namespace spillway::python {

struct Leaf;

/// Parameters that an optimizer updates: those of a model, or tensors that the user made.
struct Weights {
  explicit Weights(nn::Sequential blocks);
  /// Takes over the leaves of these tensors with their gradients, which this Weights object stores from now on.
  explicit Weights(const std::vector<std::pair<Tensor, std::shared_ptr<Leaf>>>& tensors);

  nn::Sequential model;  // the model; it has no blocks if the parameters are a user's tensors
  std::unique_ptr<nn::EagerParameters> eager;
  // only for a model: for each parameter id, the leaf of the Tensor that Python code has requested
  std::vector<std::weak_ptr<Leaf>> leaves;
};

/// The state of a leaf: a tensor that requires a gradient and was not computed from others.
struct Leaf {
  Tensor gradient;                   // the gradient of a leaf that belongs to no Weights object
  std::shared_ptr<Weights> weights;  // the Weights object that stores the gradient, if the leaf belongs to one
  u32 id = 0;
  std::string name;
  bool wanted = true;  // whether a gradient is computed; if the leaf belongs to Weights, the parameter's `frozen` decides instead
  bool wants() const;
};

class Graph final : public autograd::GradientSink, public std::enable_shared_from_this<Graph> {
 public:
  autograd::Tape& tape() { return tape_; }
  /// Returns a pointer to this graph for an Array that holds the variable. As long as such a pointer exists, the graph keeps the
  /// operations from which the variable was computed.
  std::shared_ptr<Graph> held(const Variable& v);
  bool over() const { return over_; }
  /// Returns the leaf's variable on the tape. Every call for one leaf returns the same variable.
  Variable lift(const std::shared_ptr<Leaf>& leaf, const Tensor& value);
  /// Declares that this model runs on the graph; the model's blocks record parameters on the
  /// tape under their own ids. A graph has one model at most; throws Error(usage) on another.
  void run_model(const std::shared_ptr<Weights>& weights);
  bool may_run(const std::shared_ptr<Weights>& weights) const { return !model_ || model_ == weights; }
  /// Computes the gradients and passes them to the leaves. Unless `retain` is set, the operations from which y was computed are released.
  /// If no operation is left, the graph cannot be used any more.
  void backward(const Variable& y, const Tensor& dy, bool retain);

  Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) override;
  void done(u32 parameter, u8 use) override;

 private:
  using Place = std::pair<std::shared_ptr<Weights>, u32>;
  struct Holder {
    std::shared_ptr<Graph> graph;
    i32 slot;
  };
  Place place_of(u32 parameter) const;
  u32 number_of(const Place& place);
  std::vector<i32> held_slots();

  autograd::Tape tape_{this};
  std::atomic<bool> over_ = false;
  std::shared_ptr<Weights> model_;
  std::vector<Place> others_;  // parameters of Weights objects that are not this graph's model; their ids begin at kOthers
  std::map<const Leaf*, std::pair<std::shared_ptr<Leaf>, Variable>> leaves_;
  std::vector<std::weak_ptr<Holder>> holders_;  // one entry for each variable that an Array holds
  size_t most_holders_ = 64;                    // from this number of entries on, entries of variables that are gone are removed
};

/// The Python class Tensor. A thread that does not have the turn (turn.h) may call only needs_gradient() and value().
struct Array {
  Variable v;
  std::shared_ptr<Graph> graph;                  // the graph on which this tensor was computed, if any
  std::shared_ptr<Leaf> leaf;                    // set if this tensor is a leaf: it requires a gradient and was not computed from others
  std::shared_ptr<const InBlock> in_block = {};  // set if this tensor exists only in a block's forward (pass.h); the others are then unset
  std::shared_ptr<Leaf> kept = {};               // holds the gradient of a tensor that was computed from others, after retain_grad()
  // whether this is a copy of elements where PyTorch's result would share the other tensor's memory
  bool is_copy = false;
  std::shared_ptr<Declared> declared = {};  // set for a Python Parameter, whose value is kept in `declared`; `leaf` is set too

  /// In a block's forward, variable() and value() throw Error(usage) for a tensor that does not belong to the forward.
  const Variable& variable() const { return in_block ? in_block->variable() : declared ? declared->variable() : v; }
  const Tensor& value() const { return variable().value; }
  bool needs_gradient() const { return (leaf && leaf->wants()) || (graph && !graph->over()) || (in_block && variable().needs_gradient()); }
  /// Returns whether the value belongs to the forward of a block that runs now, and ends with it.
  bool ends_with_forward() const { return in_block || (declared && Pass::current() != nullptr); }
  Tensor gradient() const;
  void forget_gradient() const;
  /// Throws Error(usage) if requires_grad cannot be set to `wanted`.
  void check_wanted(bool wanted) const;
};
Array constant(Tensor value);
/// Returns the array of a variable that was computed on `graph`, which may be null.
Array computed_on(const Variable& y, const std::shared_ptr<Graph>& graph);
/// Returns a tensor whose value was made in memory of the current stream: in a block's forward a tensor that ends with the forward,
/// elsewhere a constant.
Array made(Tensor value);
/// An argument that must be a Tensor, read like the classes of arguments.h. It lives as long as the call.
class Given {
 public:
  static Given read(const nb::handle& given) noexcept;
  operator const Array&() const { return problem_.check(), *array_; }  // NOLINT
  const Tensor& value() const { return static_cast<const Array&>(*this).value(); }

 private:
  const Array* array_ = nullptr;
  Problem problem_;
};
/// Sets the property requires_grad of a tensor.
void set_wanted(Array& array, bool wanted);

/// Returns the thread's graph: the last one, or a new one if the last one is gone or its backward() was called.
std::shared_ptr<Graph> current_graph();
/// Returns whether operations of this thread are recorded: false inside a `with no_grad()` block.
bool recording();
void bind_no_grad(nb::module_& module);

/// Copies of the tensors that an operation takes as inputs, made under the GIL.
struct Inputs {
  explicit Inputs(std::span<const Array* const> inputs);
  std::vector<Array> arrays;
  i64 bytes = 0;
  Device device;  // device of the first tensor
};

/// Holds the variables of an operation's inputs, and their common graph, which is null if nothing is recorded. Throws Error(usage) if they
/// belong to two graphs or devices. In a block's forward the variables are on the tape of the run, and there is no graph; a tensor from
/// outside that requires a gradient is refused.
struct Lifted {
  explicit Lifted(const Inputs& inputs);
  std::shared_ptr<Graph> graph;
  std::vector<Variable> variables;
};

/// Runs `call` and turns Error(bug) into Error(usage): a wrong argument is a mistake of the Python
/// user, but an op reports it as a bug of the C++ code that calls it. `call` must not run Python code.
template <class Call>
auto as_arguments(const Call& call) {
  try {
    return call();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::bug) throw;
    throw Error(ErrorCode::usage, e.what());
  }
}

/// Applies op(variables...) to the arrays, recorded if one of them requires a gradient.
/// `op` runs while this thread has the turn (turn.h) and must not touch Python's objects.
template <class Op>
Array apply_to(std::span<const Array* const> inputs, const Op& op) {
  const Inputs copies(inputs);
  const Running running(copies.device, copies.bytes >= kLongBytes, InForward::on_block);
  const Lifted lifted(copies);
  const Variable y = as_arguments([&] { return op(lifted.variables); });
  if (Pass* pass = Pass::current()) return {{}, nullptr, nullptr, pass->hold(y)};
  return computed_on(y, lifted.graph);
}
template <class Op, class... Arrays>
Array apply(const Op& op, const Arrays&... arrays) {
  const Array* const inputs[] = {&static_cast<const Array&>(arrays)...};
  return apply_to(
      inputs, [&]<size_t... i>(std::index_sequence<i...>) {
        return [&](const std::vector<Variable>& v) -> Variable { return op(v[i]...); };
      }(std::index_sequence_for<Arrays...>()));
}

}  // namespace spillway::python

template <>
struct nanobind::detail::type_caster<spillway::python::Given> : argument_caster<spillway::python::Given> {
  static constexpr auto Name = const_name("Tensor");
};
