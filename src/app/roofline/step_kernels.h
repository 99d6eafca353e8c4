// The kernels of a training step on a GPU, with what each multiplies, reads and writes: the table that the roofline is made of. It follows
// src/ops and src/kernels as they are, one entry a pass over memory, so that a pass that is saved there is a line less here. Pure
// functions.
#pragma once
#include <vector>

#include "app/roofline/kernel.h"
#include "models/config.h"
#include "parallel/plan/plan.h"

namespace spillway::app {

/// Of a plan for training text on a GPU in bf16 or f16, with nothing frozen. Throws Error(usage) on another.
std::vector<Kernel> kernels_of_step(const parallel::Plan& plan, const models::ModelConfig& model, const Ceilings& ceilings);

}  // namespace spillway::app
