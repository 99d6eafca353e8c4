// Binds the model's parameters to the memory in which their weights lie at the moment: the device memory to which an offloaded group was
// copied, or the place where a resident group is stored. The thread that computes blocks reads this memory. The order of a rank's
// instructions puts every bind and unbind before or after these reads.
#pragma once
#include "nn/module.h"
#include "parallel/state/model_state.h"

namespace spillway::parallel {

class ShownWeights {
 public:
  /// Makes an object that binds nothing yet. The model, the plan and the state must outlive it.
  ShownWeights(const nn::Sequential& model, const Plan& plan, ModelState& state) : model_(model), plan_(plan), state_(state) {}

  /// Binds the group's parameters to the memory at `base`, in which they lie according to the group's flat layout.
  void show(u16 group, std::byte* base);
  void hide(u16 group);
  /// Binds the parameters of all groups that stay on the device, to the memory of the generation (copy of the weights) that readers see.
  void show_resident();
  void hide_all();
  /// Makes the next generation (complete copy of weights and optimizer state) the one that readers see, and binds the groups that stay on
  /// the device to it.
  void publish();

 private:
  const nn::Sequential& model_;
  const Plan& plan_;
  ModelState& state_;
};

}  // namespace spillway::parallel
