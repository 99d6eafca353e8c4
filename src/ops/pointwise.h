// More element-wise ops, in PyTorch's words: f32, f64, bf16 and f16 (computed in f32, rounded once), inputs of any strides, stretched as
// numpy does; the gradient of a stretched input is the sum over the axes it was stretched along, in ascending order. No element's value
// depends on its place. Throws Error(bug), with the shapes and dtypes that came, on those that do not go together.
#pragma once
#include <limits>

#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// |x|; the gradient at 0 is 0.
Variable abs(const Variable& x);
Variable neg(const Variable& x);
/// x^exponent, the exponent in Wide<T>. The gradient of x^0 is 0 everywhere.
Variable pow(const Variable& x, double exponent);
/// The exponent's gradient at a base of 0 is 0 (where the exponent is not below 0).
Variable pow(const Variable& base, const Variable& exponent);

/// x where it is above 0, else negative_slope x (Maas et al., Rectifier Nonlinearities Improve Neural Network Acoustic Models, 2013).
Variable leaky_relu(const Variable& x, double negative_slope = 0.01);
/// x where it is above 0, else alpha (exp(x) - 1) (Clevert et al., arXiv:1511.07289).
Variable elu(const Variable& x, double alpha = 1);
/// log(1 + exp(beta x)) / beta, or x where beta x > threshold; beta above 0.
Variable softplus(const Variable& x, double beta = 1, double threshold = 20);
/// x (x + 3, held in [0, 6]) / 6 (Howard et al., arXiv:1905.02244).
Variable hardswish(const Variable& x);
/// x tanh(log(1 + exp(x))) (Misra, arXiv:1908.08681).
Variable mish(const Variable& x);

/// Held in [lowest, highest]; the gradient passes strictly between the bounds (as PyTorch 2.15 has it; before, on them too). NaN stays.
Variable clamp(const Variable& x, double lowest = -std::numeric_limits<double>::infinity(),
               double highest = std::numeric_limits<double>::infinity());
/// NaN where one is; of equals each gets half of the gradient.
Variable maximum(const Variable& a, const Variable& b);
Variable minimum(const Variable& a, const Variable& b);

/// Masks: uint8 (or bool) tensors of 0 and 1; no gradient flows through them. NaN is equal to nothing and ordered with nothing.
Tensor eq(const Variable& a, const Variable& b);
Tensor ne(const Variable& a, const Variable& b);
Tensor lt(const Variable& a, const Variable& b);
Tensor le(const Variable& a, const Variable& b);
Tensor gt(const Variable& a, const Variable& b);
Tensor ge(const Variable& a, const Variable& b);
/// With a number in Wide<T>.
Tensor eq(const Variable& a, double b);
Tensor ne(const Variable& a, double b);
Tensor lt(const Variable& a, double b);
Tensor le(const Variable& a, double b);
Tensor gt(const Variable& a, double b);
Tensor ge(const Variable& a, double b);

/// a where the mask is not 0, else b. All three stretch.
Variable where(const Tensor& mask, const Variable& a, const Variable& b);
/// `value` where the mask is not 0, else x. The mask stretches to x.
Variable masked_fill(const Variable& x, const Tensor& mask, double value);

}  // namespace spillway::ops
