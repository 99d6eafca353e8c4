// Tensors as Python has them: PyTorch's requires_grad and backward() over the library's tapes. An operation on a tensor that wants a
// gradient is recorded on the thread's graph, which lives as long as a tensor that was computed on it; backward() goes over it once.
// Graphs, leaves and weights are touched in a turn alone, an Array's fields under the GIL alone (turn.h): before its turn a thread copies
// the Arrays that it computes with. Invariant: an Array that has a slot keeps its graph alive.
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
#include "python/module/runtime.h"

namespace spillway::python {

using autograd::Variable;

struct Leaf;

/// Parameters that an optimizer steps: a model's, or tensors of the user's own.
struct Weights {
  explicit Weights(nn::Sequential blocks);
  /// Takes their leaves over: their gradients are here from now on.
  explicit Weights(const std::vector<std::pair<Tensor, std::shared_ptr<Leaf>>>& tensors);

  nn::Sequential model;  // without blocks: of tensors
  std::unique_ptr<nn::EagerParameters> eager;
  std::vector<std::weak_ptr<Leaf>> leaves;  // of a model: by parameter id, once asked for
};

/// A tensor that wants a gradient.
struct Leaf {
  Tensor gradient;                   // of one that is in no Weights
  std::shared_ptr<Weights> weights;  // where the gradient is, if it is there
  u32 id = 0;
  std::string name;
};

class Graph final : public autograd::GradientSink {
 public:
  autograd::Tape& tape() { return tape_; }
  bool over() const { return over_; }
  /// Its place on the tape, the same one whenever it is asked for.
  Variable lift(const std::shared_ptr<Leaf>& leaf, const Tensor& value);
  /// The model whose blocks put their parameters on the tape by their own ids: one a graph. Error(usage) on another.
  void run_model(const std::shared_ptr<Weights>& weights);
  bool may_run(const std::shared_ptr<Weights>& weights) const { return !model_ || model_ == weights; }
  /// Once; hands the leaves their gradients.
  void backward(const Variable& y, const Tensor& dy);

  Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) override;
  void done(u32 parameter, u8 use) override;

 private:
  using Place = std::pair<std::shared_ptr<Weights>, u32>;
  Place place_of(u32 parameter) const;
  u32 number_of(const Place& place);

  autograd::Tape tape_{this};
  std::atomic<bool> over_ = false;
  std::shared_ptr<Weights> model_;
  std::vector<Place> others_;  // numbered from kOthers
  std::map<const Leaf*, std::pair<std::shared_ptr<Leaf>, Variable>> leaves_;
};

/// What Python calls a Tensor. Of its members needs_gradient() and value() alone may be called outside of a turn.
struct Array {
  Variable v;
  std::shared_ptr<Graph> graph;  // it was computed there
  std::shared_ptr<Leaf> leaf;    // it wants a gradient itself

  const Tensor& value() const { return v.value; }
  bool needs_gradient() const { return leaf || (graph && !graph->over()); }
  Tensor gradient() const;
  void forget_gradient() const;
  /// Throws Error(usage) where it cannot want a gradient, or must.
  void check_wanted(bool wanted) const;
};
Array constant(Tensor value);
/// A tensor where one is wanted, as the classes of arguments.h. It lives as long as the call.
class Given {
 public:
  static Given read(const nb::handle& given) noexcept;
  operator const Array&() const { return problem_.check(), *array_; }  // NOLINT
  const Tensor& value() const { return static_cast<const Array&>(*this).value(); }

 private:
  const Array* array_ = nullptr;
  Problem problem_;
};
/// requires_grad of an object of Python's.
void set_wanted(Array& array, bool wanted);

/// The thread's graph; a new one where the last is gone or over.
std::shared_ptr<Graph> current_graph();
/// While one lives nothing is recorded on this thread.
bool recording();
void bind_no_grad(nb::module_& module);

/// Copies of an op's tensors, made under the GIL.
struct Inputs {
  explicit Inputs(std::span<const Array* const> inputs);
  std::vector<Array> arrays;
  i64 bytes = 0;
  Device device;  // of the first
};

/// Variables of `inputs` on one graph, null where nothing is recorded. Error(usage) where they are of two graphs or devices.
struct Lifted {
  explicit Lifted(const Inputs& inputs);
  std::shared_ptr<Graph> graph;
  std::vector<Variable> variables;
};

/// What an op calls a broken promise of its caller is a wrong argument here. No Python code runs in `call`.
template <class Call>
auto as_arguments(const Call& call) {
  try {
    return call();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::bug) throw;
    throw Error(ErrorCode::usage, e.what());
  }
}

/// op(variables...) of the arrays, recorded where one of them wants a gradient. `op` runs in a turn: it touches nothing of Python's.
template <class Op>
Array apply_to(std::span<const Array* const> inputs, const Op& op) {
  const Inputs copies(inputs);
  const Running running(copies.device, copies.bytes >= kLongBytes);
  const Lifted lifted(copies);
  const Variable y = as_arguments([&] { return op(lifted.variables); });
  return {y, y.needs_gradient() ? lifted.graph : nullptr, nullptr};
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
