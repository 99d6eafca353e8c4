// Arithmetic of the gated delta rule on the CPU, for rows of a chunk in the calling thread. The functions are compiled once per instruction
// set (delta_rows_cpu.cc). T is float or double.
#pragma once
#include "tensor/dtype.h"

namespace spillway::kernels::delta {

/// Computes the weights of a position from those of n positions, with e[j] = exp(top - decay[j]): to_output[j] = qk[j] * e[j] and
/// to_value[j] = beta * kk[j] * e[j].
template <class T>
void weights(const T* qk, const T* kk, const T* decay, i64 n, T top, T beta, T* to_output, T* to_value);

/// The backward step of weights() for the gradients `doutput` and `dvalue` of the weights. Adds the gradients of qk and kk to dqk and dkk
/// and those of the exponents to dexponents. Returns the gradient of beta.
template <class T>
T weights_gradient(const T* qk, const T* kk, const T* doutput, const T* dvalue, const T* decay, i64 n, T top, T beta, T* dqk, T* dkk,
                   T* dexponents);

/// Computes the inverse of I + A, where A is the part of a[n, n] strictly below its diagonal. The part of inverse[n, n] above the diagonal
/// is zero.
template <class T>
void inverse_of_unit_lower(const T* a, i64 n, T* inverse);

}  // namespace spillway::kernels::delta
