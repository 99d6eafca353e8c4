// The plain eager way, for those whose model fits: every parameter of a Sequential gets real memory, all blocks run on one tape,
// loss.backward(), read the gradients, change the weights. Used by tests, examples and whoever wants no plan; a rank's trainer does not.
//   EagerParameters weights(model);  models::fill(model, source);
//   Tape tape(&weights);  context.tape = &tape;
//   run(model, context).backward();
//   weights.gradient(id) …
// Not thread-safe. Invariant: while it lives, the storage of every parameter of the model is resident.
#pragma once
#include <map>

#include "nn/module.h"

namespace spillway::nn {

class EagerParameters final : public autograd::GradientSink {
 public:
  /// Memory (zero) for every parameter from the stream in force. `model` must outlive this; its storages must be vacant.
  explicit EagerParameters(const Sequential& model);
  ~EagerParameters() override;
  EagerParameters(const EagerParameters&) = delete;
  EagerParameters& operator=(const EagerParameters&) = delete;

  /// The gradient since the last forget(): backward passes add up in the order they ran, then the uses of a shared parameter in block
  /// order; f32 of a bf16 parameter. Undefined if nothing flowed there.
  Tensor gradient(u32 parameter) const;
  /// Of one use alone.
  Tensor gradient(u32 parameter, u8 use) const;
  /// Lets go of all gradients (zero_grad).
  void forget();

  Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) override;
  void done(u32 parameter, u8 use) override;

 private:
  using Key = std::pair<u32, u8>;
  const Sequential& model_;
  std::vector<Tensor> memory_;  // by parameter id
  std::map<Key, Tensor> unfinished_, gradients_;
};

/// All blocks in order: the sum of the token losses, or the logits (Mode::generate).
Variable run(const Sequential& model, const Context& context);

}  // namespace spillway::nn
