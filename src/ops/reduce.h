// Sums and means, f32, f64, bf16 and f16, of inputs of any strides. Partition and order of every sum are functions of the shape alone (fp64
// partial sums for all).
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Over all elements: a scalar (rank 0).
Variable sum(const Variable& x);
Variable mean(const Variable& x);
/// Over one axis; `keep` leaves it with extent 1.
Variable sum(const Variable& x, int axis, bool keep);
Variable mean(const Variable& x, int axis, bool keep);

}  // namespace spillway::ops
