// Arithmetic of chunked recurrences on the CPU, for single rows of n elements in the calling thread. The functions are compiled once per
// instruction set (scan_rows_cpu.cc). T is float or double; S may also be bf16 or f16.
#pragma once
#include "tensor/dtype.h"

namespace spillway::kernels::scan {

/// Computes to[i] = scores[i] * exp(top - decay[i]) * factor[i].
template <class T>
void decayed(const T* scores, const T* decay, const T* factor, i64 n, T top, T* to);

/// The backward step of decayed() for a product of `to` with rows: w holds the gradient of `to` and e = exp(top - decay). Computes
/// weights = scores * e and adds e * w * factor to dscores and that times scores to the gradients of the exponents, dexponents.
template <class T>
void decayed_gradient(const T* scores, const T* w, const T* decay, const T* factor, i64 n, T top, T* weights, T* dscores, T* dexponents);

/// Computes y = factor * x.
template <class S>
void times(const S* x, i64 n, Wide<S> factor, Wide<S>* y);

/// Computes z = a * x + b * y; z may be x.
template <class S, class Z>
void weighted_sum(const Wide<S>* x, Wide<S> a, const S* y, Wide<S> b, i64 n, Z* z);

/// Returns the sum of the elements.
template <class T>
T sum(const T* x, i64 n);

}  // namespace spillway::kernels::scan
