// The formulas of pointwise.h, shared by the CPU loops and the GPU kernels.
// Only pointwise_cpu.cc and pointwise_cuda.cu include this header.
#pragma once
#include <cmath>
#include <utility>

#include "kernels/elementwise/pointwise.h"

namespace spillway::kernels {

/// Returns whether an op uses powers, exponentials or logarithms, which compile to long code.
constexpr bool is_long(Pointwise op) {
  switch (op) {
    case Pointwise::power:
    case Pointwise::power_slope:
    case Pointwise::elu:
    case Pointwise::elu_slope:
    case Pointwise::softplus:
    case Pointwise::softplus_slope:
    case Pointwise::mish:
    case Pointwise::mish_slope:
    case Pointwise::pow:
    case Pointwise::pow_base_slope:
    case Pointwise::pow_exponent_slope:
    case Pointwise::logistic_error:
    case Pointwise::logistic_error_slope:
    case Pointwise::divergence:
    case Pointwise::divergence_of_logs:
    case Pointwise::divergence_of_logs_slope:
      return true;
    default:
      return false;
  }
}

/// Returns whether an op is a single arithmetic instruction. Such an op has a separate GPU kernel.
constexpr bool is_arithmetic(Pointwise op) { return op == Pointwise::same || (Pointwise::add <= op && op <= Pointwise::div); }

template <Pointwise kOp, class W>
struct Formula {
  W p, q;

  constexpr W operator()() const { return p; }

  constexpr W operator()(W a) const {
    if constexpr (kOp == Pointwise::same) return a;
    if constexpr (kOp == Pointwise::absolute) return std::abs(a);
    if constexpr (kOp == Pointwise::power) return p == 2 ? a * a : std::pow(a, p);
    if constexpr (kOp == Pointwise::leaky_relu) return a > 0 ? a : p * a;
    if constexpr (kOp == Pointwise::elu) return a > 0 ? a : p * std::expm1(a);
    if constexpr (kOp == Pointwise::softplus) return p * a > q ? a : std::log1p(std::exp(p * a)) / p;
    if constexpr (kOp == Pointwise::hardswish) return a * (a < -3 ? W(0) : a > 3 ? W(6) : a + 3) / 6;
    if constexpr (kOp == Pointwise::mish) return a * std::tanh(std::log1p(std::exp(a)));
    if constexpr (kOp == Pointwise::clamp) return a < p ? p : a > q ? q : a;
  }

  constexpr W operator()(W a, W b) const {
    if constexpr (kOp == Pointwise::add) return a + b;
    if constexpr (kOp == Pointwise::sub) return a - b;
    if constexpr (kOp == Pointwise::mul) return a * b;
    if constexpr (kOp == Pointwise::div) return a / b;
    if constexpr (kOp == Pointwise::absolute_slope) return b * sign(a);
    if constexpr (kOp == Pointwise::power_slope) return p == 0 ? W(0) : b * (p * std::pow(a, p - 1));
    if constexpr (kOp == Pointwise::leaky_relu_slope) return a > 0 ? b : p * b;
    if constexpr (kOp == Pointwise::elu_slope) return a > 0 ? b : b * (p * std::exp(a));
    if constexpr (kOp == Pointwise::softplus_slope) return p * a > q ? b : b * logistic(p * a);
    if constexpr (kOp == Pointwise::hardswish_slope) return a <= -3 ? W(0) : a < 3 ? b * (a / 3 + W(0.5)) : b;
    if constexpr (kOp == Pointwise::mish_slope) {
      const W t = std::tanh(std::log1p(std::exp(a)));
      return b * (t + a * logistic(a) * (1 - t * t));
    }
    if constexpr (kOp == Pointwise::clamp_slope) return p < a && a < q ? b : W(0);
    if constexpr (kOp == Pointwise::pow) return std::pow(a, b);
    if constexpr (kOp == Pointwise::maximum) return a > b || a != a ? a : b;
    if constexpr (kOp == Pointwise::minimum) return a < b || a != a ? a : b;
    if constexpr (kOp == Pointwise::squared_error) return (a - b) * (a - b);
    if constexpr (kOp == Pointwise::absolute_error) return std::abs(a - b);
    if constexpr (kOp == Pointwise::huber_error) {
      const W d = std::abs(a - b);
      return d <= p ? W(0.5) * d * d : p * (d - W(0.5) * p);
    }
    if constexpr (kOp == Pointwise::logistic_error) return (a > 0 ? a : W(0)) - a * b + std::log1p(std::exp(-std::abs(a)));
    if constexpr (kOp == Pointwise::divergence) return b == 0 ? W(0) : b * (std::log(b) - a);
    if constexpr (kOp == Pointwise::divergence_of_logs) return std::exp(b) * (b - a);
  }

  constexpr W operator()(W a, W b, W c) const {
    if constexpr (kOp == Pointwise::pow_base_slope) return b == 0 ? W(0) : c * (b * std::pow(a, b - 1));
    if constexpr (kOp == Pointwise::pow_exponent_slope) return a == 0 && b >= 0 ? W(0) : c * (std::pow(a, b) * std::log(a));
    if constexpr (kOp == Pointwise::larger_slope) return a < b ? W(0) : a == b ? W(0.5) * c : c;
    if constexpr (kOp == Pointwise::squared_error_slope) return c * (2 * (a - b));
    if constexpr (kOp == Pointwise::absolute_error_slope) return c * sign(a - b);
    if constexpr (kOp == Pointwise::huber_error_slope) return c * (a - b < -p ? -p : a - b > p ? p : a - b);
    if constexpr (kOp == Pointwise::logistic_error_slope) return c * (logistic(a) - b);
    if constexpr (kOp == Pointwise::divergence_slope) return c * -b;
    if constexpr (kOp == Pointwise::divergence_of_logs_slope) return c * -std::exp(b);
  }

  static constexpr W logistic(W a) { return 1 / (1 + std::exp(-a)); }

  // sign() returns 0 for 0 and for NaN, as PyTorch does.
  static constexpr W sign(W a) { return a > 0 ? W(1) : a < 0 ? W(-1) : W(0); }
};

template <Compare kOp, class W>
constexpr u8 holds(W a, W b) {
  if constexpr (kOp == Compare::eq) return a == b;
  if constexpr (kOp == Compare::ne) return a != b;
  if constexpr (kOp == Compare::lt) return a < b;
  if constexpr (kOp == Compare::le) return a <= b;
  if constexpr (kOp == Compare::gt) return a > b;
  if constexpr (kOp == Compare::ge) return a >= b;
}
template <Compare kOp, class W>
struct Comparison {
  W number;
  constexpr u8 operator()(W a) const { return holds<kOp>(a, number); }
  constexpr u8 operator()(W a, W b) const { return holds<kOp>(a, b); }
};

struct Choice {
  template <class W>
  constexpr W operator()(u8 mask, W a, W b) const {
    return mask != 0 ? a : b;
  }
};
template <class W>
struct FillWhere {
  bool set;
  W value;
  constexpr W operator()(u8 mask, W x) const { return (mask != 0) == set ? value : x; }
};

/// Calls f(std::integral_constant<Enum, op>), where Enum has kCount values. This turns the run-time value `op` into a template argument.
template <int kCount, class Enum, class F>
constexpr void for_enum(Enum op, F f) {
  const auto one = [&]<int i>(std::integral_constant<int, i>) {
    if (static_cast<int>(op) == i) f(std::integral_constant<Enum, static_cast<Enum>(i)>());
  };
  [&]<int... i>(std::integer_sequence<int, i...>) { (one(std::integral_constant<int, i>()), ...); }
  (std::make_integer_sequence<int, kCount>());
}

/// Returns the strides of `view` when it is broadcast to the larger shape `wanted`. Throws Error(bug) if the shapes do not broadcast.
Shape stretched_strides(const Tensor& view, const Shape& wanted);

}  // namespace spillway::kernels
