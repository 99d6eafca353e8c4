// A tensor made of zeros and of elements that are added in places along one axis: what gradients of picked elements are.
#pragma once
#include "kernels/accumulate.h"
#include "kernels/axis/pick.h"

namespace spillway::ops {

/// `sums`, in wide_dtype of `dtype`, as a tensor of `dtype`.
inline Tensor rounded(const Tensor& sums, DType dtype) {
  if (!is_half(dtype)) return sums;
  const Tensor narrow = empty(sums.shape(), dtype, "rounded sums");
  kernels::rounded_copy(sums, narrow);
  return narrow;
}

/// Of shape `shape` and of from's type; added in ascending order, rounded once.
inline Tensor scattered(const Tensor& from, const kernels::Axis& axis, const Tensor& index, const kernels::Picks& picks,
                        const Shape& shape) {
  const Tensor sums = zeros(shape, wide_dtype(from.dtype()), "scattered sums");
  kernels::scatter_add(from, axis, index, picks, sums);
  return rounded(sums, from.dtype());
}

}  // namespace spillway::ops
