// Which memory the model's parameters see as their weights: the slot that a moving group has come to, or where a resident one lies. The
// compute lane reads what it was shown; whoever shows or hides a group comes before or after it in the Program.
#pragma once
#include "nn/module.h"
#include "parallel/state/model_state.h"

namespace spillway::parallel {

class ShownWeights {
 public:
  /// All outlive it.
  ShownWeights(const nn::Sequential& model, const Plan& plan, ModelState& state) : model_(model), plan_(plan), state_(state) {}

  /// `base`: of the group's flat layout.
  void show(u16 group, std::byte* base);
  void hide(u16 group);
  /// What stays on the device, where its generation lies.
  void show_resident();
  void hide_all();
  /// Readers see the next generation.
  void publish();

 private:
  const nn::Sequential& model_;
  const Plan& plan_;
  ModelState& state_;
};

}  // namespace spillway::parallel
