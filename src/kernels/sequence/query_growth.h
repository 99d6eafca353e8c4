// Multiplies queries by a factor that grows with the logarithm of their position, so that attention over long rows stays sharp
// (Nakanishi, arXiv:2501.19399; used in Llama 4 and Ministral 3). For contiguous x[B, T, H, D] in f32, f64, bf16 or f16.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Writes x times 1 + growth * ln(1 + floor(position / original)) to y, which may be x. positions[B, T] are int32. The factor is computed
/// in wide_dtype of x and rounded to x's dtype. The same function gives the gradient of x.
void grow_queries(const Tensor& x, const Tensor& positions, double growth, i64 original, const Tensor& y);

namespace cuda {
decltype(kernels::grow_queries) grow_queries;
}  // namespace cuda

}  // namespace spillway::kernels
