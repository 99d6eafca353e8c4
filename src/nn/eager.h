// The plain eager way, for those whose model fits: every parameter of a Sequential gets real memory, all blocks run on one tape,
// loss.backward(), read the gradients, change the weights. Used by tests, examples and whoever wants no plan; a rank's trainer does not.
//   EagerParameters weights(model);  models::fill(model, source);
//   Tape tape(&weights);  context.tape = &tape;
//   run(model, context).backward();
//   weights.gradient(id) …            (eager/optimizer.h makes steps of them)
// Not thread-safe. Invariant: while it lives, the storage of every parameter of the model is resident.
#pragma once
#include <map>

#include "nn/module.h"

namespace spillway::nn {

class EagerParameters final : public autograd::GradientSink {
 public:
  /// Memory (zero) for every parameter from the stream in force; their storages must be vacant.
  explicit EagerParameters(const Sequential& model) : EagerParameters(model.parameters) {}
  /// Of parameters that are in no model, whose ids become their places in the list: `tape.parameter(p->value(), p->id)` is a variable.
  explicit EagerParameters(std::vector<std::shared_ptr<Parameter>> parameters);
  ~EagerParameters() override;
  EagerParameters(const EagerParameters&) = delete;
  EagerParameters& operator=(const EagerParameters&) = delete;

  /// The gradient since the last forget(): backward passes add up in the order they ran, then the uses of a shared parameter in block
  /// order; f32 of a bf16 parameter. Undefined if nothing flowed there.
  Tensor gradient(u32 parameter) const;
  /// Of one use alone.
  Tensor gradient(u32 parameter, u8 use) const;
  /// Backward passes that it is the sum of.
  i64 passes(u32 parameter) const;
  /// Lets go of all gradients (zero_grad), or of one parameter's; of those too that a backward pass which threw left unfinished.
  void forget();
  void forget(u32 parameter);
  /// From now on called with each gradient when a backward pass has finished it, once for each use, before it is added to those before; it
  /// may write into it. Empty: no more.
  using Hook = std::function<void(const Parameter& parameter, const Tensor& gradient)>;
  void on_gradient(Hook hook) { hook_ = std::move(hook); }

  /// The memory that a parameter lies in, which outlives this.
  const Tensor& memory(u32 parameter) const { return memory_.at(parameter); }
  /// From now on the parameter lies in `memory`, contiguous, of its shape, type and device, perhaps another program's, and has the values
  /// that are there. Throws Error(usage) on any other.
  void adopt(u32 parameter, const Tensor& memory);

  /// By id; those that are frozen are what PyTorch calls buffers, or without requires_grad.
  const std::vector<std::shared_ptr<Parameter>>& parameters() const { return parameters_; }
  /// Error(usage) if there is none of that name.
  const std::shared_ptr<Parameter>& parameter(const std::string& name) const;

  /// All values to the device of the stream in force, a GPU, or from the GPU of that stream to the host, or none where that throws for want
  /// of memory. Gradients are let go of.
  void to_current_device();
  void to_host();

  Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) override;
  void done(u32 parameter, u8 use) override;

 private:
  using Key = std::pair<u32, u8>;
  void move(const std::function<Tensor(const Tensor&)>& moved);
  const std::vector<std::shared_ptr<Parameter>> parameters_;
  std::vector<Tensor> memory_;  // by parameter id
  Hook hook_;
  std::map<Key, Tensor> unfinished_, gradients_;
  std::map<Key, i64> passes_;  // of gradients_
};

/// All blocks in order: the sum of the token losses, or the logits (Mode::generate).
Variable run(const Sequential& model, const Context& context);

}  // namespace spillway::nn
