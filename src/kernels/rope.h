// Rotary position embedding, rotate-half, of x[B, T, H, D], contiguous, f32, f64, bf16 or f16: pairs (i, i + P) for P frequencies, at most
// D/2 and 512; the elements of a head from 2 P on stay as they are.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

constexpr i64 kMaxRopePairs = 512;

/// y = x turned by +-(position * frequency), times `scaling`; `back` turns the other way (the gradient). y may be x. positions[B, T] int32.
/// The angle is a product in wide_dtype of x.
void rope(const Tensor& x, const Tensor& positions, std::span<const double> inverse_frequencies, double scaling, bool back,
          const Tensor& y);

namespace cuda {
decltype(kernels::rope) rope;
}  // namespace cuda

}  // namespace spillway::kernels
