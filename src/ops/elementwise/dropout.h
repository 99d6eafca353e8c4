// Dropout whose mask is a function of (key, sample number, index in the sample). Backward recomputes the mask instead of storing it, and
// the mask does not depend on how the batch is cut into micro-batches.
#pragma once
#include "autograd/tape.h"
#include "base/random.h"

namespace spillway::ops {

using autograd::Variable;

/// Drops elements of x[B, ...], whose row b is sample first_sample + b of the run. Element e of row b becomes 0 if uniform(key,
/// first_sample + b, e) < p (base/random.h); otherwise it is multiplied by 1/(1-p). p lies in [0, 1); for p == 0 the function returns x
/// itself.
Variable dropout(const Variable& x, double p, RandomKey key, i64 first_sample);

}  // namespace spillway::ops
