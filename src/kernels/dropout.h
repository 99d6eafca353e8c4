// Dropout masks as functions of (key, sample, element): an element is dropped when uniform(key, sample, element) < p (base/random.h), else
// multiplied by Wide<T>(1 / (1 - p)). f32, f64 and bf16.
#pragma once
#include "base/random.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// x[i] dropped or scaled in place, elements [first, first + n) of one sample. One thread.
template <class T>
void drop(RandomKey key, i64 sample, i64 first, i64 n, double p, T* x);

/// y = x with row b (axis 0) masked as sample first_sample + b; contiguous; y may be x. Also the gradient.
void dropout(const Tensor& x, double p, RandomKey key, i64 first_sample, const Tensor& y);

}  // namespace spillway::kernels
