// What a model is and needs, found out without any memory: it is made and run once, forward and backward, on the meta device, which knows
// shapes alone. For the eager way; a plan knows more (spillway plan).
#pragma once
#include <functional>

#include "nn/module.h"

namespace spillway::nn {

struct ModelSize {
  i64 parameters = 0, trained_parameters = 0;    // elements, a shared one counted once
  i64 parameter_bytes = 0, gradient_bytes = 0;   // gradients: one for each trained parameter, f32 of bf16 and f16
  i64 kept_bytes = 0;                            // what lies between forward and backward
  i64 peak_bytes = 0;                            // the most that activations take at once, those of backward among them
  double forward_flops = 0, backward_flops = 0;  // FlopCount
  std::string text() const;                      // one line for each
};

/// Of the model that `build` makes, for a micro-batch of so many rows of so many positions (images: 1), on a CPU or as a GPU would have it.
/// `build` runs with the meta device in force: it must not look at values.
ModelSize measure(const std::function<Sequential()>& build, i64 rows, i64 positions, Device::Kind on = Device::Kind::cpu);

}  // namespace spillway::nn
