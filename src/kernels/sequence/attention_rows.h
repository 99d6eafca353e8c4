// Arithmetic of attention on the CPU, for single rows of n elements in the calling thread. The functions are
// compiled once per instruction set (attention_rows_cpu.cc). T is float or double; S may also be bf16 or f16.
#pragma once
#include "tensor/dtype.h"

namespace spillway::kernels::rows {

/// Computes x = softmax(scale * x) in place, with scale > 0. Returns the logarithm of the sum of exp(scale * x).
template <class T>
T softmax(T* x, i64 n, T scale);

/// Computes x = cap * tanh(scale * x / cap) in place.
template <class T>
void cap(T* x, i64 n, T scale, T cap);

/// Computes dx *= 1 - (x / cap)^2, where x are the scores after the soft cap.
template <class T>
void cap_gradient(const T* x, T* dx, i64 n, T cap);

/// Computes x = exp(scale * x - lse) in place: turns scores into probabilities.
template <class T>
void probabilities(T* x, i64 n, T scale, T lse);

/// Computes dx = p * (dx - delta) * scale in place: turns the gradients of the probabilities p into those of the scores.
template <class T>
void softmax_gradient(const T* p, T* dx, i64 n, T delta, T scale);

/// Returns the sum of x[i] * y[i].
template <class S>
Wide<S> dot(const S* x, const S* y, i64 n);

}  // namespace spillway::kernels::rows
