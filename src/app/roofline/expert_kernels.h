// Lists the kernels of a mixture of experts in a layer (src/ops/experts), with the FLOPs and bytes of each, as step_kernels.h does for
// other kernels. The function is pure.
#pragma once
#include <vector>

#include "app/roofline/kernel.h"
#include "models/config.h"

namespace spillway::app {

/// How often the layers with experts run in a step: `forward` counts runs of their forward, including recomputations for a backward;
/// `input` and `weights` count the runs that compute the gradients of their inputs and of their weights.
struct ExpertRuns {
  double forward = 0, input = 0, weights = 0;
};

/// Returns the kernels from the router's logits to the sum over the experts, but for the router's matrix products. `positions` is the
/// number of positions of a micro-batch; each takes `chosen` rows. Only these rows are multiplied, in tiles: half of the last tile of rows
/// is empty on average in each expert that has rows. Weights of experts without rows are not read, but the gradients of all are written.
std::vector<Kernel> expert_kernels(const models::ModelConfig& model, double positions, const ExpertRuns& runs, const Ceilings& ceilings);

}  // namespace spillway::app
