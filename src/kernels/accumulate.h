// Declares element-wise sums and copies of gradients. The arguments are contiguous
// f32, f64, bf16 or f16 views of equal shape. Each element is rounded once.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Computes to[i] += from[i].
void accumulate(const Tensor& to, const Tensor& from);
/// Computes out[i] = a[i] + b[i]; out may be a or b.
void add(const Tensor& a, const Tensor& b, const Tensor& out);
/// Copies `from` to `to`. Both have the same dtype, of any kind, or `from` is bf16 and each element is widened to an f32 `to`.
void copy(const Tensor& from, const Tensor& to);
/// Rounds each f32 element of `from` to the dtype of `to`, bf16 or f16.
void rounded_copy(const Tensor& from, const Tensor& to);

namespace cuda {
decltype(kernels::add) add;
decltype(kernels::copy) copy;
decltype(kernels::rounded_copy) rounded_copy;
}  // namespace cuda

}  // namespace spillway::kernels
