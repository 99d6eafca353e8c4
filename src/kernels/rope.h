// Rotary position embedding in the rotate-half form, for contiguous x[B, T, H, D] in f32, f64, bf16 or f16. P frequencies (at most D/2 and
// 512) rotate the pairs (i, i + P); the elements of a head from 2 P on stay unchanged.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

constexpr i64 kMaxRopePairs = 512;

/// Computes y = x rotated by position * frequency, times `scaling`; `back` rotates the other way, which gives the gradient. y may be x.
/// positions[B, T] are int32. The angle is a product in wide_dtype of x.
void rope(const Tensor& x, const Tensor& positions, std::span<const double> inverse_frequencies, double scaling, bool back,
          const Tensor& y);

namespace cuda {
decltype(kernels::rope) rope;
}  // namespace cuda

}  // namespace spillway::kernels
