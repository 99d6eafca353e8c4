// Element-wise arithmetic and activations for f32, f64, bf16 and f16 (computed in f32) and inputs of any
// strides. Two-argument ops broadcast as numpy does; the gradient of a broadcast input is the sum over the
// axes along which it was broadcast, in ascending order. Each op rounds once, and no element's value depends
// on its place in the tensor. Throws Error(bug) on dtypes that differ or shapes that do not broadcast.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

Variable add(const Variable& a, const Variable& b);
Variable sub(const Variable& a, const Variable& b);
Variable mul(const Variable& a, const Variable& b);
Variable div(const Variable& a, const Variable& b);

/// Returns x times `factor`, which is first rounded to the type of the computation (f32, or f64 for f64).
Variable scale(const Variable& x, double factor);
/// Returns x in wide_dtype of it: bf16 and f16 as f32, f32 and f64 as they are. The gradient is rounded to the type of x.
Variable widened(const Variable& x);
Variable exp(const Variable& x);
Variable log(const Variable& x);
Variable sqrt(const Variable& x);
/// Returns 1 / sqrt(x).
Variable rsqrt(const Variable& x);
Variable tanh(const Variable& x);
Variable sigmoid(const Variable& x);
/// Returns max(x, 0). The gradient at 0 is 0.
Variable relu(const Variable& x);
/// Returns max(x, 0)^2 (So et al., arXiv:2109.08668).
Variable relu_squared(const Variable& x);
/// Returns x * sigmoid(x).
Variable silu(const Variable& x);
/// Returns 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), GPT-2's gelu_new (Hendrycks and Gimpel, arXiv:1606.08415).
Variable gelu_tanh(const Variable& x);
/// Returns 0.5 x (1 + erf(x / sqrt 2)).
Variable gelu_erf(const Variable& x);

}  // namespace spillway::ops
