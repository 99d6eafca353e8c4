// A hash by which a restart recognizes the nvme store of its run.
#pragma once
#include "parallel/plan/plan.h"

namespace spillway::parallel {

/// Returns a hash of everything that decides what the persistent bytes in the store mean. Gradients and activations are left out: they lie
/// behind the persistent bytes, and a restart may find that they are faster in another tier.
u64 layout_hash(const Plan& plan);

}  // namespace spillway::parallel
