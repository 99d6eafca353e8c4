// Which tier each group's weights, gradients (by use) and optimizer state rest in, and what else shapes a Program. Values.
#pragma once
#include <vector>

#include "offload/tier.h"
#include "parallel/layout.h"

namespace spillway::parallel {

using offload::Tier;

/// One tier a group, indexed by group id.
struct Placement {
  std::vector<Tier> parameters, gradients, optimizer;

  static Placement uniform(const Layout& layout, Tier parameters, Tier gradients, Tier optimizer) {
    const size_t n = layout.groups.size();
    return {std::vector(n, parameters), std::vector(n, gradients), std::vector(n, optimizer)};
  }
};

struct Scheduling {
  i64 micro_batches = 1;  // K
  int prefetch = 1;       // blocks fetched ahead
  bool recompute = false;
  DType dtype = DType::f32;  // of weights, gradients and state
};

}  // namespace spillway::parallel
