// Ops that move elements: f32, f64, bf16 and f16, contiguous in and out. reshape shares memory with its input; the others write a new
// tensor.
#pragma once
#include <vector>

#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// The same elements in the same order.
Variable reshape(const Variable& x, const Shape& shape);
/// Axis i of the result is axis axes[i] of x; negative axes count from the end.
Variable permute(const Variable& x, const std::vector<int>& axes);
/// [begin, end) of one axis.
Variable slice(const Variable& x, int axis, i64 begin, i64 end);
/// Along `axis`; the other extents are equal. At least one part.
Variable concat(const std::vector<Variable>& parts, int axis);

}  // namespace spillway::ops
