// Element-wise work on one to three operands: views of any strides, which stretch to the result's shape as numpy does; f32, f64, bf16 and
// f16, computed in Wide types and rounded once. The result is contiguous, and may be an operand that has its shape and is contiguous too.
// CPU and GPU run one formula (formulas.h): without a power, a logarithm or an exponential in it, to the same bits.
#pragma once
#include <initializer_list>

#include "tensor/tensor.h"

namespace spillway::kernels {

/// What an element is made of those of the operands a, b and c and of the numbers p and q.
enum class Pointwise {
  fill,              // p
  absolute,          // |a|
  power,             // a^p
  leaky_relu,        // a where it is above 0, else p a
  elu,               // a where it is above 0, else p (exp(a) - 1)
  softplus,          // log(1 + exp(p a)) / p; a where p a > q
  hardswish,         // a (a + 3 held in [0, 6]) / 6
  mish,              // a tanh(log(1 + exp(a)))
  clamp,             // a held in [p, q]
  absolute_slope,    // b sign(a)
  power_slope,       // b p a^(p - 1)
  leaky_relu_slope,  // of these b times the derivative at a
  elu_slope,
  softplus_slope,
  hardswish_slope,
  mish_slope,
  clamp_slope,         // b where p < a < q, else 0
  pow,                 // a^b
  maximum,             // of a and b, NaN if one is
  minimum,             // alike
  squared_error,       // (a - b)^2
  absolute_error,      // |a - b|
  huber_error,         // with d = |a - b|: d^2 / 2 where d <= p, else p (d - p / 2)
  logistic_error,      // -b log(s) - (1 - b) log(1 - s), s = sigmoid(a)
  divergence,          // b (log(b) - a), 0 where b is
  divergence_of_logs,  // exp(b) (b - a)
  // c times a derivative of one of these, by a where it does not say.
  pow_base_slope,
  pow_exponent_slope,  // by b
  larger_slope,        // of the larger of a and b: half of c where they are equal
  squared_error_slope,
  absolute_error_slope,
  huber_error_slope,
  logistic_error_slope,
  divergence_slope,
  divergence_of_logs_slope
};
constexpr int kPointwiseCount = static_cast<int>(Pointwise::divergence_of_logs_slope) + 1;
constexpr int operands_of(Pointwise op) {
  if (op == Pointwise::fill) return 0;
  return op <= Pointwise::clamp ? 1 : op < Pointwise::pow_base_slope ? 2 : 3;
}

/// Two numbers of a formula, rounded to the type computed in.
struct Numbers {
  double p = 0, q = 0;
};
void pointwise(Pointwise op, std::initializer_list<Tensor> operands, Numbers numbers, const Tensor& out);

enum class Compare { eq, ne, lt, le, gt, ge };
/// out (uint8) = 1 where a op b, else 0. `b` undefined: a op number.
void compare(Compare op, const Tensor& a, const Tensor& b, double number, const Tensor& out);

/// out = a where mask (uint8 or bool) is not 0, else b.
void where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& out);
/// out = `value` where the mask is set (or, not `set`, where it is not), else x.
void fill_where(const Tensor& mask, bool set, double value, const Tensor& x, const Tensor& out);

namespace cuda {
decltype(kernels::pointwise) pointwise;
decltype(kernels::compare) compare;
decltype(kernels::where) where;
decltype(kernels::fill_where) fill_where;
}  // namespace cuda

}  // namespace spillway::kernels
