// Gathers elements along an axis by index, and adds to elements by index. A lane is one line of elements along the axis (axis.h). The
// elements are contiguous f32, f64, bf16 or f16; indices are int32.
#pragma once
#include "kernels/axis.h"

namespace spillway::kernels {

/// Describes where in a tensor of indices each lane of an axis finds its `count` indices. Index k of lane (o, i) is index[o * outer + k *
/// step + i * inner].
struct Picks {
  i64 count, outer, step, inner;
};
/// picks_of_all() is for one list of indices that all lanes share. picks_of_each() is for separate lists for each lane, index[outer, count,
/// inner].
constexpr Picks picks_of_all(i64 count) { return {count, 0, 1, 0}; }
constexpr Picks picks_of_each(i64 count, const Axis& axis) { return {count, count * axis.inner, axis.inner, 1}; }

/// Copies out[o, k, i] = x[o, j, i], where j is index k of lane (o, i). Throws Error(data) if an
/// index is outside [0, n). On a GPU, where the call does not wait, the element becomes NaN, and the next wait throws.
void gather(const Tensor& x, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& out);
/// Adds to[o, j, i] += from[o, k, i] for k in ascending order, where j is index k of lane (o, i); the order, and so the bits, are the same
/// on the CPU and on a GPU. `to` is in wide_dtype of `from`. Throws Error(data) if an index is outside
/// [0, n). On a GPU, where the call does not wait, the lane's first element becomes NaN, and the next wait throws.
void scatter_add(const Tensor& from, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& to);

namespace cuda {
decltype(kernels::gather) gather;
decltype(kernels::scatter_add) scatter_add;
}  // namespace cuda

}  // namespace spillway::kernels
