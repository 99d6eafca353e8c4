// Sums of gradients: elementwise, f32, f64, bf16 or f16, contiguous views of equal shape, one rounding an element.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// to[i] += from[i]
void accumulate(const Tensor& to, const Tensor& from);
/// out[i] = a[i] + b[i]; out may be a or b.
void add(const Tensor& a, const Tensor& b, const Tensor& out);
/// The elements of `from` into `to`: any dtype as it is, and bf16 into f32.
void copy(const Tensor& from, const Tensor& to);
/// f32 into bf16 or f16.
void rounded_copy(const Tensor& from, const Tensor& to);

namespace cuda {
decltype(kernels::add) add;
decltype(kernels::copy) copy;
decltype(kernels::rounded_copy) rounded_copy;
}  // namespace cuda

}  // namespace spillway::kernels
