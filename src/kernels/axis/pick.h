// Elements along an axis by their places: gathering, and adding to them. f32, f64, bf16 and f16, contiguous; places are int32.
#pragma once
#include "kernels/axis/axis.h"

namespace spillway::kernels {

/// `count` places for each lane: that of the k-th in the lane (o, i) is index[o * outer + k * step + i * inner].
struct Picks {
  i64 count, outer, step, inner;
};
/// One list of places for all lanes; and places of their own for each, index[outer, count, inner].
constexpr Picks picks_of_all(i64 count) { return {count, 0, 1, 0}; }
constexpr Picks picks_of_each(i64 count, const Axis& axis) { return {count, count * axis.inner, axis.inner, 1}; }

/// out[o, k, i] = x[o, place, i]. Throws Error(data) on a place outside [0, n); on a GPU, which is not waited for, the element is NaN.
void gather(const Tensor& x, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& out);
/// to[o, place, i] += from[o, k, i], in ascending k; `to` in wide_dtype of `from`. A lane is one thread's. Places outside as above: on a
/// GPU the first of the lane becomes NaN.
void scatter_add(const Tensor& from, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& to);

namespace cuda {
decltype(kernels::gather) gather;
decltype(kernels::scatter_add) scatter_add;
}  // namespace cuda

}  // namespace spillway::kernels
