// Computes a hash by which a restart recognizes the nvme store of its run.
#pragma once
#include "parallel/plan/plan.h"

namespace spillway::parallel {

/// Returns a hash of everything that decides what the persistent bytes in the store mean. The hash leaves out where gradients and
/// activations are placed: their bytes lie behind the persistent bytes, and a restart may place them in another tier because that is
/// faster.
u64 layout_hash(const Plan& plan);

}  // namespace spillway::parallel
