// Lists the kernels of a training step on a GPU, with the FLOPs and bytes of each, as the table from which the
// roofline is made. The list mirrors src/ops and src/kernels, with one entry for each kernel that passes over
// memory. When a kernel is removed there, its entry must be removed from this list. All functions are pure.
#pragma once
#include <vector>

#include "app/roofline/kernel.h"
#include "models/config.h"
#include "parallel/plan/plan.h"

namespace spillway::app {

/// Returns the kernels of a step of `plan`, which must train a text model on a GPU in bf16 or fp16 with no frozen parameters. Throws
/// Error(usage) for any other plan.
std::vector<Kernel> kernels_of_step(const parallel::Plan& plan, const models::ModelConfig& model, const Ceilings& ceilings);

}  // namespace spillway::app
