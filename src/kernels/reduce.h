// Sums along axes and broadcasting arithmetic, f32, f64, bf16 and f16. Partial sums are fp64 for all; their order is ascending along the
// summed axis in chunks that depend on the shape alone; on a GPU that of a tree over the threads of one block, whose size the shape fixes.
// Its blocks share rows and columns out: one row of any length is one block's work.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// from, contiguous, seen as [outer, n, inner] -> to[outer, inner]: the sums over n, times `factor`. `to` has the type of `from`,
/// or f32 where that is bf16 or f16.
void sum_axis(const Tensor& from, i64 outer, i64 n, i64 inner, double factor, const Tensor& to);

enum class Binary { add, sub, mul, div };

/// Strides of `shape` seen as the larger `wanted`: stretched axes get stride 0. Throws Error(bug) if it does not broadcast.
Shape broadcast_strides(const Shape& shape, const Shape& wanted);
/// The shape that a and b broadcast to, as numpy does.
Shape broadcast_shape(const Shape& a, const Shape& b);

/// out = a op b; a and b contiguous, of shapes that broadcast to out's; out contiguous, and may be a or b where that has out's shape.
void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out);
/// out = x stretched to out's shape.
void broadcast(const Tensor& x, const Tensor& out);

namespace cuda {
decltype(kernels::sum_axis) sum_axis;
decltype(kernels::binary) binary;
decltype(kernels::broadcast) broadcast;
}  // namespace cuda

}  // namespace spillway::kernels
