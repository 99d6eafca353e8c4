// Rotary position embedding, for contiguous x[B, T, H, D] in f32, f64, bf16 or f16. There are P frequencies, at most D/2 and at most 512.
// Frequency i rotates the pair of elements (i, i + P) of each head, which lie half of the rotated part apart. Elements from 2 P on stay
// unchanged.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

constexpr i64 kMaxRopePairs = 512;

/// Rotates each pair of x by the angle position * frequency, multiplies it by `scaling` and
/// writes the result to y. With `back`, the rotation goes in the opposite direction, which gives
/// the gradient. y may be x. positions[B, T] are int32. The angle is computed in wide_dtype of x.
void rope(const Tensor& x, const Tensor& positions, std::span<const double> inverse_frequencies, double scaling, bool back,
          const Tensor& y);

namespace cuda {
decltype(kernels::rope) rope;
}  // namespace cuda

}  // namespace spillway::kernels
