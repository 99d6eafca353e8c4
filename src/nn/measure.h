// Measures a model's size and memory needs without allocating memory: the model is built and run once, forward and backward,
// on the meta device, which tracks shapes alone. The measurement is for training without a plan; `spillway plan` tells more.
#pragma once
#include <functional>

#include "nn/module.h"

namespace spillway::nn {

struct ModelSize {
  i64 parameters = 0, trained_parameters = 0;    // the numbers of elements; a shared parameter counts once
  i64 parameter_bytes = 0, gradient_bytes = 0;   // a gradient has the type of its parameter, but f32 for bf16 and f16
  i64 kept_bytes = 0;                            // the bytes of activations kept from forward to backward
  i64 peak_bytes = 0;                            // the largest size of all activations at one time, their gradients included
  double forward_flops = 0, backward_flops = 0;  // floating-point operations, counted as by FlopCount
  std::string text() const;                      // returns all sizes as text, one line for each kind
};

/// Measures the model that `build` returns, for a micro-batch of `rows` sequences of `positions` positions (or of `rows` images, with
/// `positions` 1). The figures are those of a run on the kind of device that `on` names. `build` runs with the meta device current, so it
/// must not read values.
ModelSize measure(const std::function<Sequential()>& build, i64 rows, i64 positions, Device::Kind on = Device::Kind::cpu);

}  // namespace spillway::nn
