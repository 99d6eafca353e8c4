// Further element-wise ops under PyTorch's names, for f32, f64, bf16 and f16 (computed in f32, rounded once) and inputs of any strides,
// which broadcast as in numpy. The gradient of a broadcast input is the sum over the axes along which it was broadcast, in ascending order.
// No element's value depends on its place in the tensor. Throws an Error(bug) that lists the shapes and dtypes if they do not match.
#pragma once
#include <limits>

#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns |x|. The gradient at 0 is 0.
Variable abs(const Variable& x);
Variable neg(const Variable& x);
/// Returns x^exponent; the exponent is first rounded to the type of the computation. The gradient of x^0 is 0 everywhere.
Variable pow(const Variable& x, double exponent);
/// Returns base^exponent. For a base of 0 and an exponent of at least 0, the exponent's gradient is 0.
Variable pow(const Variable& base, const Variable& exponent);

/// Returns x if x > 0, and negative_slope x otherwise (Maas et al., Rectifier Nonlinearities Improve Neural Network Acoustic Models, 2013).
Variable leaky_relu(const Variable& x, double negative_slope = 0.01);
/// Returns x if x > 0, and alpha (exp(x) - 1) otherwise (Clevert et al., arXiv:1511.07289).
Variable elu(const Variable& x, double alpha = 1);
/// Returns log(1 + exp(beta x)) / beta, or x if beta x > threshold. beta must be above 0.
Variable softplus(const Variable& x, double beta = 1, double threshold = 20);
/// Returns x clamp(x + 3, 0, 6) / 6 (Howard et al., arXiv:1905.02244).
Variable hardswish(const Variable& x);
/// Returns x tanh(log(1 + exp(x))) (Misra, arXiv:1908.08681).
Variable mish(const Variable& x);

/// Limits x to [lowest, highest]. The gradient passes only strictly between the bounds (as in PyTorch 2.15; earlier versions pass it on the
/// bounds too). NaN stays NaN.
Variable clamp(const Variable& x, double lowest = -std::numeric_limits<double>::infinity(),
               double highest = std::numeric_limits<double>::infinity());
/// maximum() returns the larger and minimum() the smaller of two elements, or
/// NaN if either is NaN. Two equal elements get half of the gradient each.
Variable maximum(const Variable& a, const Variable& b);
Variable minimum(const Variable& a, const Variable& b);

/// The comparisons return masks: uint8 tensors of 0 and 1, through which no gradient flows. Comparisons with NaN are false, except ne().
Tensor eq(const Variable& a, const Variable& b);
Tensor ne(const Variable& a, const Variable& b);
Tensor lt(const Variable& a, const Variable& b);
Tensor le(const Variable& a, const Variable& b);
Tensor gt(const Variable& a, const Variable& b);
Tensor ge(const Variable& a, const Variable& b);
/// The comparisons below take a number as their second operand; it is rounded to the type of the computation.
Tensor eq(const Variable& a, double b);
Tensor ne(const Variable& a, double b);
Tensor lt(const Variable& a, double b);
Tensor le(const Variable& a, double b);
Tensor gt(const Variable& a, double b);
Tensor ge(const Variable& a, double b);

/// Returns a where the mask is not 0, and b elsewhere. All three are broadcast to one shape.
Variable where(const Tensor& mask, const Variable& a, const Variable& b);
/// Returns `value` where the mask is not 0, and x elsewhere. The mask is broadcast to x.
Variable masked_fill(const Variable& x, const Tensor& mask, double value);

}  // namespace spillway::ops
