// Sums along axes, and arithmetic with broadcasting, for f32, f64, bf16 and f16. Partial sums are fp64 for all dtypes. A CPU adds them in
// ascending order, in chunks that depend on the shape alone. A GPU adds them as a tree over the threads of one thread block, whose size
// depends on the shape. Thread blocks are distributed over rows and columns, so a single row is summed by one thread block, however long it
// is.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Sums `from`, which is contiguous and is treated as [outer, n, inner], over n. Writes the sums times
/// `factor` to to[outer, inner]. `to` has the dtype of `from`, or may be f32 if `from` is bf16 or f16.
void sum_axis(const Tensor& from, i64 outer, i64 n, i64 inner, double factor, const Tensor& to);

enum class Binary { add, sub, mul, div };

/// Returns the strides of a contiguous tensor of this shape when it is broadcast to the larger shape `wanted`. Broadcast axes have stride
/// 0. Throws Error(bug) if the shape does not broadcast to `wanted`.
Shape broadcast_strides(const Shape& shape, const Shape& wanted);
/// Returns the shape to which shapes a and b broadcast, with numpy's rules.
Shape broadcast_shape(const Shape& a, const Shape& b);

/// Computes out = a op b. a and b are contiguous, and their shapes broadcast to
/// out's. out is contiguous, and may be a or b if it has that operand's shape.
void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out);
/// Writes x to out, broadcast to the shape of out.
void broadcast(const Tensor& x, const Tensor& out);

namespace cuda {
decltype(kernels::sum_axis) sum_axis;
decltype(kernels::binary) binary;
decltype(kernels::broadcast) broadcast;
}  // namespace cuda

}  // namespace spillway::kernels
