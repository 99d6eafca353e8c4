// Builds a tensor of zeros to which elements are added at given indices
// along one axis. Ops that pick elements compute their gradients this way.
#pragma once
#include "kernels/accumulate.h"
#include "kernels/layout/pick.h"

namespace spillway::ops {

/// Returns `sums` rounded to `dtype`. `sums` are in wide_dtype of `dtype`.
inline Tensor rounded(const Tensor& sums, DType dtype) {
  if (!is_half(dtype)) return sums;
  const Tensor narrow = empty(sums.shape(), dtype, "rounded sums");
  kernels::rounded_copy(sums, narrow);
  return narrow;
}

/// Returns a tensor of shape `shape` and of the dtype of `from`: zeros, to which the elements of `from` are added at `index`, in ascending
/// order. Each sum is rounded once.
inline Tensor scattered(const Tensor& from, const kernels::Axis& axis, const Tensor& index, const kernels::Picks& picks,
                        const Shape& shape) {
  const Tensor sums = zeros(shape, wide_dtype(from.dtype()), "scattered sums");
  kernels::scatter_add(from, axis, index, picks, sums);
  return rounded(sums, from.dtype());
}

}  // namespace spillway::ops
