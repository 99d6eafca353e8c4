// Matrix products for which cuBLASLt has no kernel: any extents and strides, with one thread per element of the result. They are slow but
// correct. Included only by kernels/products/*_cuda.cu.
#pragma once
#include "kernels/products/matmul.h"

namespace spillway::kernels::cuda {

/// Computes matmul()'s product without a workspace. The sum of an element runs over ascending k in f32 (f64 for f64). The bias
/// and the old value are added to that sum, which is then rounded once. plain_matmul_takes() says which dtypes are supported.
void plain_matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, Store store);

}  // namespace spillway::kernels::cuda
