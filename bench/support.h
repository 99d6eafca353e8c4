// This header has what several benchmarks of CPU kernels use: inputs, medians and times.
#pragma once
#include <algorithm>
#include <chrono>
#include <vector>

#include "tensor/tensor.h"

namespace spillway {

/// Returns a tensor of f32 or bf16 with numbers from -0.5 to 0.5 that look random and are always the same.
inline Tensor filled(const Shape& shape, DType dtype) {
  const Tensor t = empty(shape, dtype);
  u32 state = 1;
  for (i64 i = 0; i < t.elems(); ++i) {
    const float x = static_cast<float>((state = state * 1664525U + 1013904223U) >> 8) * 0x1p-24F - 0.5F;
    if (dtype == DType::f32) {
      t.data<float>()[i] = x;
    } else {
      t.data<BFloat16>()[i] = narrow<BFloat16>(x);
    }
  }
  return t;
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Returns how long work() takes.
template <class F>
double seconds(F work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace spillway
