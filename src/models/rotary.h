// Computes the rotation frequencies of a layer's rotary position embedding. Pure function.
#pragma once
#include <vector>

#include "models/families/model_config.h"

namespace spillway::models {

struct Rotary {
  std::vector<double> frequencies;  // the angle in radians per position, for each pair of elements
  double scaling = 1;               // the factor by which the rotated elements are multiplied
  // For longrope: the frequencies for rows of more than original_positions positions; otherwise empty.
  std::vector<double> long_frequencies;
  i64 original_positions = 0;

  const std::vector<double>& frequencies_for(i64 length) const {
    return long_frequencies.empty() || length <= original_positions ? frequencies : long_frequencies;
  }
};
/// Returns the rotation frequencies with the configuration's scaling. A windowed layer that uses the base local_rope_theta has no scaling.
Rotary rotary_of(const ModelConfig& config, i64 layer);

}  // namespace spillway::models
