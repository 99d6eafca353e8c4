// Element-wise sums and copies of gradients: f32, f64, bf16 or f16, contiguous views of equal shape, one rounding per element.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Computes to[i] += from[i].
void accumulate(const Tensor& to, const Tensor& from);
/// Computes out[i] = a[i] + b[i]; out may be a or b.
void add(const Tensor& a, const Tensor& b, const Tensor& out);
/// Copies `from` to `to`: any dtype unchanged, or bf16 widened to f32.
void copy(const Tensor& from, const Tensor& to);
/// Rounds f32 to bf16 or f16.
void rounded_copy(const Tensor& from, const Tensor& to);

namespace cuda {
decltype(kernels::add) add;
decltype(kernels::copy) copy;
decltype(kernels::rounded_copy) rounded_copy;
}  // namespace cuda

}  // namespace spillway::kernels
