// The frequencies by which a layer's heads turn. Pure.
#pragma once
#include <vector>

#include "models/config.h"

namespace spillway::models {

struct Rotary {
  std::vector<double> frequencies;  // radians a position, one a pair of elements
  double scaling = 1;               // of what is turned
};
/// With the config's scaling; of a windowed layer that has a theta of its own, without.
Rotary rotary_of(const ModelConfig& config, i64 layer);

}  // namespace spillway::models
