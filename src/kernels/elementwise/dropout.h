// Dropout whose mask is a function of (key, sample, element), for f32, f64, bf16 and f16. An element is dropped
// if uniform(key, sample, element) < p (base/random.h); otherwise it is multiplied by Wide<T>(1 / (1 - p)).
#pragma once
#include <cmath>

#include "base/random.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// dropout_draw() returns the 53 random bits of uniform(key, sample, element). dropout_limit() returns p in the same
/// scale. An element is dropped if dropout_draw() < dropout_limit(p), which is uniform < p, computed with integers.
constexpr u64 dropout_draw(RandomKey key, u64 sample, u64 element) {
  const auto words = philox(key, sample, element);
  return (words[0] | static_cast<u64>(words[1]) << 32) >> 11;
}
inline u64 dropout_limit(double p) { return static_cast<u64>(std::ceil(p * 0x1p53)); }

/// Drops or scales x[i] in place, for i in [0, n). These n elements are
/// elements first, first + 1, ... of the sample. Runs in the calling thread.
template <class T>
void drop(RandomKey key, i64 sample, i64 first, i64 n, double p, T* x);

/// Computes y, which is x after dropout. Row b (axis 0) is sample first_sample + b of the mask. x and y
/// are contiguous, and y may be x. Called with dy instead of x, the function computes the gradient dx.
void dropout(const Tensor& x, double p, RandomKey key, i64 first_sample, const Tensor& y);

namespace cuda {
decltype(kernels::dropout) dropout;
}  // namespace cuda

}  // namespace spillway::kernels
