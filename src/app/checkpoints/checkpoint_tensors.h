// What a checkpoint's optimizer.safetensors holds of each parameter, beside the weights of model.safetensors: bf16 and f16 weights have a
// master of their own. Shared by who writes and who reads checkpoints.
#pragma once
#include <vector>

#include "optim/tile_values.h"

namespace spillway::app {

constexpr const char *kWeightsName = "model.safetensors", *kStateName = "optimizer.safetensors", *kConfigName = "config.json";

struct StateTensor {
  const char* suffix;  // after the parameter's name
  optim::StatePart part;
};

inline std::vector<StateTensor> state_tensors(const optim::StateFormat& format) {
  std::vector<StateTensor> all{{".exp_avg", optim::StatePart::first}, {".exp_avg_sq", optim::StatePart::second}};
  if (is_half(format.weight)) all.insert(all.begin(), {".master", optim::StatePart::master});
  return all;
}

inline DType state_dtype(const optim::StateFormat& format) { return format.weight == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace spillway::app
