// By what a restart knows the store of its run.
#pragma once
#include "parallel/plan/plan.h"

namespace spillway::parallel {

/// Of whatever decides which bytes of what persists in the store mean what. Not gradients and activations, which lie behind it: a restart
/// may find them faster elsewhere.
u64 layout_hash(const Plan& plan);

}  // namespace spillway::parallel
