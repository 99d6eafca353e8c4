// Binds the model's parameters to the memory in which their weights currently lie: the slot that an offloaded group was copied to, or the
// place of a resident group. The compute lane reads the bound memory; the Program orders every bind and unbind before or after it.
#pragma once
#include "nn/module.h"
#include "parallel/state/model_state.h"

namespace spillway::parallel {

class ShownWeights {
 public:
  /// The model, the plan and the state must outlive this object.
  ShownWeights(const nn::Sequential& model, const Plan& plan, ModelState& state) : model_(model), plan_(plan), state_(state) {}

  /// Binds the group's parameters to memory at `base`, which has the group's flat layout.
  void show(u16 group, std::byte* base);
  void hide(u16 group);
  /// Binds every group that stays on the device to the memory of the generation that readers see.
  void show_resident();
  void hide_all();
  /// Makes the next generation the one that readers see.
  void publish();

 private:
  const nn::Sequential& model_;
  const Plan& plan_;
  ModelState& state_;
};

}  // namespace spillway::parallel
