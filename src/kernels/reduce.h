// Sums along axes and broadcasting arithmetic: f32, f64, bf16 and f16. Partial sums are fp64 for all dtypes. On a CPU they are added in
// ascending order in chunks that depend on the shape alone; on a GPU as a tree over the threads of one block, whose size depends on the
// shape. GPU blocks are distributed over rows and columns: one row of any length is one block's work.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Sums `from`, contiguous and seen as [outer, n, inner], over n and multiplies by `factor`; writes to[outer, inner]. `to` has the dtype of
/// `from`, or may be f32 if that is bf16 or f16.
void sum_axis(const Tensor& from, i64 outer, i64 n, i64 inner, double factor, const Tensor& to);

enum class Binary { add, sub, mul, div };

/// Returns the strides of `shape` seen as the larger shape `wanted`: broadcast axes get stride 0. Throws Error(bug) if it does not
/// broadcast.
Shape broadcast_strides(const Shape& shape, const Shape& wanted);
/// Returns the shape to which a and b broadcast, as in numpy.
Shape broadcast_shape(const Shape& a, const Shape& b);

/// Computes out = a op b for contiguous a and b whose shapes broadcast to out's. out is contiguous and may be an input that has its shape.
void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out);
/// Writes x broadcast to out's shape.
void broadcast(const Tensor& x, const Tensor& out);

namespace cuda {
decltype(kernels::sum_axis) sum_axis;
decltype(kernels::binary) binary;
decltype(kernels::broadcast) broadcast;
}  // namespace cuda

}  // namespace spillway::kernels
