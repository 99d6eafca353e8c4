// Dropout whose mask is a function of (key, sample number, index in the sample). It is recomputed in backward instead of stored, and does
// not depend on how the batch is cut into micro-batches.
#pragma once
#include "autograd/tape.h"
#include "base/random.h"

namespace spillway::ops {

using autograd::Variable;

/// Sets element e of row b of x[B, ...] to 0 if uniform(key, first_sample + b, e) < p, else multiplies it by 1/(1-p). p lies in [0, 1); for
/// p == 0 it returns x itself.
Variable dropout(const Variable& x, double p, RandomKey key, i64 first_sample);

}  // namespace spillway::ops
