// Defines EagerParameters, for training without a plan of models that fit in memory: every parameter of a Sequential gets
// memory, all blocks run on one tape, and the caller runs loss.backward(), reads the gradients and changes the weights.
// Tests, examples and small programs use it; the trainer of a rank does not.
//   EagerParameters weights(model);  models::fill(model, source);
//   Tape tape(&weights);  context.tape = &tape;
//   run(model, context).backward();
//   weights.gradient(id) …            (eager/optimizer.h updates weights with them)
// Not thread-safe. Invariant: while an EagerParameters object lives, the storage of every parameter of the model is resident.
#pragma once
#include <map>

#include "nn/module.h"

namespace spillway::nn {

class EagerParameters final : public autograd::GradientSink {
 public:
  /// Allocates zeroed memory for every parameter of the model, from the current stream. The parameters' storages must not have memory yet.
  explicit EagerParameters(const Sequential& model) : EagerParameters(model.parameters) {}
  /// Allocates memory for parameters that belong to no model. Their ids become their positions in the list, so `tape.parameter(p->value(),
  /// p->id)` gives a variable.
  explicit EagerParameters(std::vector<std::shared_ptr<Parameter>> parameters);
  ~EagerParameters() override;
  EagerParameters(const EagerParameters&) = delete;
  EagerParameters& operator=(const EagerParameters&) = delete;

  /// Returns the gradient accumulated since the last forget(). For each use of the parameter, the gradients of all backward passes are
  /// added in the order in which the passes ran; then the sums of all uses are added in block order. The gradient is f32 for a bf16
  /// parameter, and undefined if no gradient reached the parameter.
  Tensor gradient(u32 parameter) const;
  /// Returns the gradient of one use of the parameter. (A parameter that several blocks share has one use for each.)
  Tensor gradient(u32 parameter, u8 use) const;
  /// Returns the number of backward passes whose gradients gradient() sums.
  i64 passes(u32 parameter) const;
  /// forget() drops all gradients (PyTorch's zero_grad); forget(parameter) drops those of
  /// one parameter. Unfinished gradients of a backward pass that threw are dropped too.
  void forget();
  void forget(u32 parameter);
  /// Multiplies the gradients of a parameter, in place.
  void scale(u32 parameter, double factor);
  /// Sets a hook that each backward pass calls with every gradient that it has finished, before the gradient
  /// is added to those of earlier passes. For a parameter that several blocks share, the hook is called once
  /// for each block. The hook may write into the gradient. An empty hook removes a hook that was set.
  using Hook = std::function<void(const Parameter& parameter, const Tensor& gradient)>;
  void on_gradient(Hook hook) { hook_ = std::move(hook); }

  /// Returns the memory that holds a parameter. The memory may outlive this object.
  const Tensor& memory(u32 parameter) const { return memory_.at(parameter); }
  /// Makes the parameter use `memory`, perhaps owned by another library, and the values in it from now on. The memory must be contiguous
  /// and of the parameter's shape, type and device; otherwise throws Error(usage).
  void adopt(u32 parameter, const Tensor& memory);

  /// Returns all parameters, each at the index that is its id. Frozen parameters
  /// correspond to PyTorch's buffers or to parameters without requires_grad.
  const std::vector<std::shared_ptr<Parameter>>& parameters() const { return parameters_; }
  /// Returns the parameter of this name. Throws Error(usage) if there is none.
  const std::shared_ptr<Parameter>& parameter(const std::string& name) const;

  /// to_current_device() moves all values to the GPU of the current stream, and to_host() from that GPU to the
  /// host. If memory runs out, the functions throw, and all values stay where they were. Gradients are dropped.
  void to_current_device();
  void to_host();

  Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) override;
  void done(u32 parameter, u8 use) override;

 private:
  using Key = std::pair<u32, u8>;
  void move(const std::function<Tensor(const Tensor&)>& moved);
  const std::vector<std::shared_ptr<Parameter>> parameters_;
  std::vector<Tensor> memory_;  // the memory of each parameter, by its id
  Hook hook_;
  std::map<Key, Tensor> unfinished_, gradients_;
  std::map<Key, i64> passes_;  // the number of backward passes summed in each entry of gradients_
};

/// Runs all blocks in order and returns the sum of the token losses, or the logits with Mode::generate or Context::all_logits.
Variable run(const Sequential& model, const Context& context);

}  // namespace spillway::nn
