// Selection and addition of elements by their indices along an axis, for f32, f64, bf16 and f16 inputs of any
// strides. Indices are int32 in [0, extent of the axis). An index out of range throws Error(data) on a CPU
// and gives NaN on a GPU. If several values are added to one element, they are added in ascending order of
// their positions, in wide_dtype, and the sum is rounded once. Throws Error(bug) on shapes that do not match.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns the slices of x at index[K]; an index may repeat. The axis gets extent K.
Variable index_select(const Variable& x, int axis, const Tensor& index);
/// Returns out[..., k, ...] = x[..., index[..., k, ...], ...]. The index must have x's extents on every other axis.
Variable gather(const Variable& x, int axis, const Tensor& index);
/// Returns x with source[..., k, ...] added at index[..., k, ...]. The source must have the shape of the index.
Variable scatter_add(const Variable& x, int axis, const Tensor& index, const Variable& source);

}  // namespace spillway::ops
