// Dropout masks as functions of (key, sample, element): an element is dropped when uniform(key, sample, element) < p (base/random.h), else
// multiplied by Wide<T>(1 / (1 - p)). f32, f64, bf16 and f16.
#pragma once
#include <cmath>

#include "base/random.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// uniform < p as whole numbers: dropout_draw < dropout_limit(p). The 53 bits of uniform(key, sample, element).
constexpr u64 dropout_draw(RandomKey key, u64 sample, u64 element) {
  const auto words = philox(key, sample, element);
  return (words[0] | static_cast<u64>(words[1]) << 32) >> 11;
}
inline u64 dropout_limit(double p) { return static_cast<u64>(std::ceil(p * 0x1p53)); }

/// x[i] dropped or scaled in place, elements [first, first + n) of one sample. One thread.
template <class T>
void drop(RandomKey key, i64 sample, i64 first, i64 n, double p, T* x);

/// y = x with row b (axis 0) masked as sample first_sample + b; contiguous; y may be x. Also the gradient.
void dropout(const Tensor& x, double p, RandomKey key, i64 first_sample, const Tensor& y);

namespace cuda {
decltype(kernels::dropout) dropout;
}  // namespace cuda

}  // namespace spillway::kernels
