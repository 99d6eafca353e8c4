// Gathers elements along an axis by index, and adds to elements by index: f32, f64, bf16 and f16, contiguous; indices are int32.
#pragma once
#include "kernels/axis/axis.h"

namespace spillway::kernels {

/// How a lane finds its `count` indices: the k-th one of lane (o, i) is index[o * outer + k * step + i * inner].
struct Picks {
  i64 count, outer, step, inner;
};
/// Return the layouts of one list of indices for all lanes, and of separate lists for each lane: index[outer, count, inner].
constexpr Picks picks_of_all(i64 count) { return {count, 0, 1, 0}; }
constexpr Picks picks_of_each(i64 count, const Axis& axis) { return {count, count * axis.inner, axis.inner, 1}; }

/// Copies out[o, k, i] = x[o, index, i]. Throws Error(data) on an index outside [0, n); on a GPU, which is not waited for, the element is
/// NaN.
void gather(const Tensor& x, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& out);
/// Adds to[o, index, i] += from[o, k, i] in ascending k, one thread per lane; `to` has wide_dtype of `from`. An index outside [0, n) throws
/// Error(data); on a GPU the lane's first element becomes NaN.
void scatter_add(const Tensor& from, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& to);

namespace cuda {
decltype(kernels::gather) gather;
decltype(kernels::scatter_add) scatter_add;
}  // namespace cuda

}  // namespace spillway::kernels
