// Row arithmetic of attention, one thread, one row at a time; per instruction set (attention_rows_cpu.cc). T is float or double; S also
// bf16.
#pragma once
#include "tensor/dtype.h"

namespace spillway::kernels::rows {

/// x = softmax(scale * x) in place, scale > 0; returns the log of the sum of exponentials of scale * x.
template <class T>
T softmax(T* x, i64 n, T scale);

/// x = cap * tanh(scale * x / cap) in place.
template <class T>
void cap(T* x, i64 n, T scale, T cap);

/// dx *= 1 - (x / cap)^2 of capped x.
template <class T>
void cap_gradient(const T* x, T* dx, i64 n, T cap);

/// x = exp(scale * x - lse) in place.
template <class T>
void probabilities(T* x, i64 n, T scale, T lse);

/// dx = p * (dx - delta) * scale in place.
template <class T>
void softmax_gradient(const T* p, T* dx, i64 n, T delta, T scale);

/// Sum of x[i] * y[i].
template <class S>
Wide<S> dot(const S* x, const S* y, i64 n);

}  // namespace spillway::kernels::rows
