// Dropout whose mask is a function of (key, sample number, place in the sample): recomputed in backward, never stored, and the same however
// the batch is cut into micro-batches.
#pragma once
#include "autograd/tape.h"
#include "base/random.h"

namespace spillway::ops {

using autograd::Variable;

/// x[B, ...]: element e of row b becomes 0 when uniform(key, first_sample + b, e) < p, else it is scaled by 1/(1-p). p in [0, 1); p == 0
/// returns x itself.
Variable dropout(const Variable& x, double p, RandomKey key, i64 first_sample);

}  // namespace spillway::ops
