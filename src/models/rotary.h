// Computes the rotation frequencies of a layer's rotary position embedding. Pure function.
#pragma once
#include <vector>

#include "models/config.h"

namespace spillway::models {

struct Rotary {
  std::vector<double> frequencies;  // the angle in radians per position, for each pair of elements
  double scaling = 1;               // the factor by which the rotated elements are multiplied
};
/// Returns the rotation frequencies with the configuration's scaling. A windowed layer that uses the base local_rope_theta has no scaling.
Rotary rotary_of(const ModelConfig& config, i64 layer);

}  // namespace spillway::models
