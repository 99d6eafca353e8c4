// Products that cuBLASLt knows no way for: any extents and strides, one element of the result a thread. Slow, and right. Included by
// kernels/matmul/*_cuda.cu alone.
#pragma once
#include "kernels/matmul/matmul.h"

namespace spillway::kernels::cuda {

/// As matmul(), without a workspace. The sum of an element goes up in k, in f32 (f64 for f64); with bias and what was there it is rounded
/// once. Types: plain_matmul_takes.
void plain_matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, Store store);

}  // namespace spillway::kernels::cuda
