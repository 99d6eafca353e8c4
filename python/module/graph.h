// Tensors as Python has them: PyTorch's requires_grad and backward() over the library's tapes. An operation on a tensor that wants a
// gradient is recorded on the thread's graph, which lives as long as a tensor that was computed on it; backward() goes over it once.
// Under the GIL, a graph of one thread at a time. Invariant: an Array that has a slot keeps its graph alive.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "base/error.h"
#include "nn/eager.h"
#include "python/module/runtime.h"

namespace spillway::python {

using autograd::Variable;

struct Leaf;

/// Parameters that an optimizer steps: a model's, or tensors of the user's own.
struct Weights {
  explicit Weights(nn::Sequential blocks);
  /// Takes their leaves over: their gradients are here from now on.
  explicit Weights(const std::vector<std::pair<Tensor, std::shared_ptr<Leaf>>>& tensors);

  std::mutex lock;       // of gradients and steps
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
  /// While one lives the graph is this thread's. Error(usage) where it is another's: a tape is of one thread at a time.
  class Use {
   public:
    explicit Use(std::shared_ptr<Graph> graph);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const std::shared_ptr<Graph> graph_;
  };
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
  bool over_ = false;
  std::atomic<bool> used_ = false;
  std::shared_ptr<Weights> model_;
  std::vector<Place> others_;  // numbered from kOthers
  std::map<const Leaf*, std::pair<std::shared_ptr<Leaf>, Variable>> leaves_;
};

/// What Python calls a Tensor.
struct Array {
  Variable v;
  std::shared_ptr<Graph> graph;  // it was computed there
  std::shared_ptr<Leaf> leaf;    // it wants a gradient itself

  const Tensor& value() const { return v.value; }
  bool needs_gradient() const { return leaf || (graph && !graph->over()); }
  Tensor gradient() const;
  void set_wanted(bool wanted);
  void forget_gradient();
};
Array constant(Tensor value);

/// The thread's graph; a new one where the last is gone or over.
std::shared_ptr<Graph> current_graph();
/// While one lives nothing is recorded on this thread.
bool recording();
void bind_no_grad(nb::module_& module);

/// Variables of `inputs` on one graph, null where nothing is recorded. Error(usage) where they are of two.
struct Lifted {
  explicit Lifted(std::span<const Array* const> inputs);
  std::shared_ptr<Graph> graph;
  std::vector<Variable> variables;
  i64 bytes = 0;
  Device device;
};

/// Where the GIL is let go of: half a millisecond's work and more.
constexpr i64 kLongBytes = 1 << 20;

/// What an op calls a broken promise of its caller is a wrong argument here.
template <class Call>
auto as_arguments(const Call& call) {
  try {
    return call();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::bug) throw;
    throw Error(ErrorCode::usage, e.what());
  }
}

/// op(variables...) of the arrays, recorded where one of them wants a gradient.
template <class Op>
Array apply_to(std::span<const Array* const> inputs, const Op& op) {
  const Lifted lifted(inputs);
  const Running running(lifted.device);
  const Graph::Use use(lifted.graph);
  Variable y;
  {
    const Unlocked unlocked(lifted.bytes >= kLongBytes);
    y = as_arguments([&] { return op(lifted.variables); });
  }
  return {y, y.needs_gradient() ? lifted.graph : nullptr, nullptr};
}
template <class Op, class... Arrays>
Array apply(const Op& op, const Arrays&... arrays) {
  const Array* const inputs[] = {&arrays...};
  return apply_to(
      inputs, [&]<size_t... i>(std::index_sequence<i...>) {
        return [&](const std::vector<Variable>& v) -> Variable { return op(v[i]...); };
      }(std::index_sequence_for<Arrays...>()));
}

}  // namespace spillway::python
