// Dropout with a mask that is a function of (key, sample, element): an element is dropped if uniform(key, sample, element) < p
// (base/random.h), else multiplied by Wide<T>(1 / (1 - p)). f32, f64, bf16 and f16.
#pragma once
#include <cmath>

#include "base/random.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Return the 53 random bits of uniform(key, sample, element) and p scaled to them. An element is dropped if dropout_draw <
/// dropout_limit(p), which equals uniform < p but compares integers.
constexpr u64 dropout_draw(RandomKey key, u64 sample, u64 element) {
  const auto words = philox(key, sample, element);
  return (words[0] | static_cast<u64>(words[1]) << 32) >> 11;
}
inline u64 dropout_limit(double p) { return static_cast<u64>(std::ceil(p * 0x1p53)); }

/// Drops or scales x[i] in place for the elements [first, first + n) of one sample, in the calling thread.
template <class T>
void drop(RandomKey key, i64 sample, i64 first, i64 n, double p, T* x);

/// Computes y = x with row b (axis 0) masked as sample first_sample + b; contiguous; y may be x. Also computes the gradient, from dy.
void dropout(const Tensor& x, double p, RandomKey key, i64 first_sample, const Tensor& y);

namespace cuda {
decltype(kernels::dropout) dropout;
}  // namespace cuda

}  // namespace spillway::kernels
