// Products for which cuBLASLt has no kernel: any extents and strides, one thread per element of the result. Slow but correct. Included only
// by kernels/matmul/*_cuda.cu.
#pragma once
#include "kernels/matmul/matmul.h"

namespace spillway::kernels::cuda {

/// Computes matmul() without a workspace. An element's sum ascends in k, in f32 (f64 for f64); bias and old value are added to it, and it
/// is rounded once. plain_matmul_takes() tells the supported dtypes.
void plain_matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, Store store);

}  // namespace spillway::kernels::cuda
