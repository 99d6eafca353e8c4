// Elements by their places along an axis: f32, f64, bf16 and f16, inputs of any strides. Places are int32 in [0, the axis' extent); others
// are Error(data), on a GPU NaN. What is added to one place is added in ascending order, in wide_dtype, and rounded once. Throws Error(bug)
// on shapes that do not go together.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// The slices of x at the places index[K], which may repeat: the axis' extent becomes K.
Variable index_select(const Variable& x, int axis, const Tensor& index);
/// out[..., k, ...] = x[..., index[..., k, ...], ...]: index has x's extents but along the axis.
Variable gather(const Variable& x, int axis, const Tensor& index);
/// x with source[..., k, ...] added at index[..., k, ...]; source has the shape of the index.
Variable scatter_add(const Variable& x, int axis, const Tensor& index, const Variable& source);

}  // namespace spillway::ops
