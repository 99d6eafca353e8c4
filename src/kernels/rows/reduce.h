// Sums along axes, for f32, f64, bf16 and f16. Partial sums are fp64 for all dtypes. A CPU adds them in ascending order, in chunks that
// depend on the shape alone. A GPU adds them as a tree over the threads of one thread block, whose size depends on the shape. Thread blocks
// are distributed over rows and columns, so one thread block sums a single row, however long the row is.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Sums `from`, which is contiguous and is treated as [outer, n, inner], over n. Writes the sums times `factor` to to[outer, inner]. `to`
/// has the dtype of `from`, or may be f32 if that is bf16 or f16.
void sum_axis(const Tensor& from, i64 outer, i64 n, i64 inner, double factor, const Tensor& to);

namespace cuda {
decltype(kernels::sum_axis) sum_axis;
}  // namespace cuda

}  // namespace spillway::kernels
