// Finds the k largest or smallest elements along an axis, in order, for f32, f64, bf16 and f16. A lane is one line of elements along the
// axis (axis.h). NaN ranks first. Of equal elements the one with the smaller index ranks first.
#pragma once
#include "kernels/axis.h"

namespace spillway::kernels {

enum class Best { largest, smallest };

/// Writes the k best elements of each lane to values[outer, k, inner], if that tensor is defined, and their int32 indices along the axis to
/// index[outer, k, inner]. k must lie in [1, n], and n must be below 2^31. Needs a workspace of best_workspace_bytes(). The results are
/// bitwise the same on the CPU and on a GPU.
void best(Best which, const Tensor& x, const Axis& axis, i64 k, const Tensor& values, const Tensor& index, const Tensor& workspace);
/// Returns the bytes of workspace that best() needs on the device of the current stream.
i64 best_workspace_bytes(const Axis& axis, i64 k, DType dtype);

namespace cuda {
decltype(kernels::best) best;
decltype(kernels::best_workspace_bytes) best_workspace_bytes;
}  // namespace cuda

/// Returns whether element a at index i ranks before element b at index j.
template <class W>
constexpr bool comes_before(Best which, W a, i64 i, W b, i64 j) {
  if (a != a || b != b) return a != a && (b == b || i < j);
  if (a == b) return i < j;
  return which == Best::largest ? a > b : a < b;
}

}  // namespace spillway::kernels
