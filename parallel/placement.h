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

/// Where the optimizer's Step of a training step stands: after its backward; inside it, speculatively into the next generation; or in the
/// next step's forward, each block's just before the block.
enum class OptimizerOverlap : u8 { none, backward, forward };

/// Micro-batch after micro-batch through all blocks, or (vertical) all micro-batches of a block before the next block, so that weights and
/// accumulators that spill travel once a step.
enum class Order : u8 { micro_batch, vertical };

struct Scheduling {
  i64 micro_batches = 1;  // K
  int prefetch = 1;       // blocks fetched ahead
  bool recompute = false;
  DType dtype = DType::f32;  // of weights, gradients and state
  OptimizerOverlap overlap = OptimizerOverlap::none;
  Order order = Order::micro_batch;
};

}  // namespace spillway::parallel
