// Sums and means for f32, f64, bf16 and f16 inputs of any strides. How a sum is split and in which order it is added depends on the shape
// alone; partial sums are fp64 for all dtypes.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// sum() returns the sum and mean() the mean of all elements as a scalar (rank 0).
Variable sum(const Variable& x);
Variable mean(const Variable& x);
/// sum() returns the sum and mean() the mean over one axis; `keep` leaves this axis in the shape with size 1.
Variable sum(const Variable& x, int axis, bool keep);
Variable mean(const Variable& x, int axis, bool keep);

}  // namespace spillway::ops
