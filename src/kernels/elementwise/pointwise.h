// Element-wise formulas of up to three operands, in f32, f64, bf16 and f16. Operands are views of any strides and are broadcast to the
// result's shape as in numpy. Formulas are computed in Wide types, and the result is rounded once. The result is contiguous. It may be one
// of the operands, if that is contiguous and has the result's shape. CPU and GPU use one formula (formulas.h), so their results are bitwise
// equal, except for powers, logarithms and exponentials.
#pragma once
#include <initializer_list>

#include "tensor/tensor.h"

namespace spillway::kernels {

/// Returns the shape to which shapes a and b broadcast, with numpy's rules.
Shape broadcast_shape(const Shape& a, const Shape& b);
/// Returns the strides of a contiguous tensor of this shape when it is broadcast to the larger shape `wanted`. Broadcast axes have stride
/// 0. Throws Error(bug) if the shape does not broadcast to `wanted`.
Shape broadcast_strides(const Shape& shape, const Shape& wanted);

/// The formula of an element. a, b and c are the operands' elements; p and q are the members of Numbers.
enum class Pointwise {
  fill,              // gives p
  same,              // gives a
  absolute,          // computes |a|
  power,             // computes a^p
  leaky_relu,        // computes a if a > 0, and p a otherwise
  elu,               // computes a if a > 0, and p (exp(a) - 1) otherwise
  softplus,          // computes log(1 + exp(p a)) / p, or a if p a > q
  hardswish,         // computes a clamp(a + 3, 0, 6) / 6
  mish,              // computes a tanh(log(1 + exp(a)))
  clamp,             // computes a limited to [p, q]
  add,               // computes a + b
  sub,               // computes a - b
  mul,               // computes a b
  div,               // computes a / b
  absolute_slope,    // computes b sign(a)
  power_slope,       // computes b p a^(p - 1)
  leaky_relu_slope,  // computes b times the derivative of leaky_relu at a; the next four ops do so for other formulas
  elu_slope,
  softplus_slope,
  hardswish_slope,
  mish_slope,
  clamp_slope,         // computes b if p < a < q, and 0 otherwise
  pow,                 // gives a^b
  maximum,             // computes the larger of a and b, or NaN if either is NaN
  minimum,             // computes the smaller of a and b, or NaN if either is NaN
  squared_error,       // computes (a - b)^2
  absolute_error,      // computes |a - b|
  huber_error,         // computes d^2 / 2 if d <= p, and p (d - p / 2) otherwise, with d = |a - b|
  logistic_error,      // computes -b log(s) - (1 - b) log(1 - s), where s = sigmoid(a)
  divergence,          // computes b (log(b) - a), or 0 if b is 0
  divergence_of_logs,  // computes exp(b) (b - a)
  // Each op after this line computes c times the derivative of a formula above, with respect to operand a unless the comment names
  // another.
  pow_base_slope,
  pow_exponent_slope,  // computes c times the derivative of the power with respect to b
  larger_slope,        // computes c if a > b, half of c if they are equal, and 0 otherwise
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

/// The numbers p and q of a formula. They are rounded to the type that the formula is computed in.
struct Numbers {
  double p = 0, q = 0;
};
void pointwise(Pointwise op, std::initializer_list<Tensor> operands, Numbers numbers, const Tensor& out);

enum class Compare { eq, ne, lt, le, gt, ge };
/// Writes out (uint8) = 1 where the comparison `a op b` holds, and 0 elsewhere. If `b` is undefined, a is compared with `number`.
void compare(Compare op, const Tensor& a, const Tensor& b, double number, const Tensor& out);

/// Writes out = a where the element of `mask` (uint8 or bool) is not 0, and out = b elsewhere.
void where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& out);
/// Writes out = `value` where the element of `mask` is not 0, and out = x
/// elsewhere. If `set` is false, writes `value` where the element is 0.
void fill_where(const Tensor& mask, bool set, double value, const Tensor& x, const Tensor& out);

namespace cuda {
decltype(kernels::pointwise) pointwise;
decltype(kernels::compare) compare;
decltype(kernels::where) where;
decltype(kernels::fill_where) fill_where;
}  // namespace cuda

}  // namespace spillway::kernels
