// The formulas of rules.h, written once for all instruction sets. Include this file after lanes_scalar.h, lanes_avx2.h or lanes_avx512.h,
// whose operations it uses. Kernels for other state formats and for GPUs (with the scalar operations) call `step` directly.
#include "optim/rules/rules.h"

namespace spillway::optim::SPILLWAY_ISA {

/// Wraps a vector so that formulas can use arithmetic operators, each of which rounds once.
template <class L>
struct Number {
  typename L::V lanes;
};
template <class L>
SPILLWAY_LANE Number<L> operator+(Number<L> a, Number<L> b) {
  return {L::add(a.lanes, b.lanes)};
}
template <class L>
SPILLWAY_LANE Number<L> operator-(Number<L> a, Number<L> b) {
  return {L::sub(a.lanes, b.lanes)};
}
template <class L>
SPILLWAY_LANE Number<L> operator*(Number<L> a, Number<L> b) {
  return {L::mul(a.lanes, b.lanes)};
}
template <class L>
SPILLWAY_LANE Number<L> operator/(Number<L> a, Number<L> b) {
  return {L::div(a.lanes, b.lanes)};
}
template <class L>
SPILLWAY_LANE Number<L> sqrt(Number<L> x) {
  return {L::sqrt(x.lanes)};
}
template <class L>
SPILLWAY_LANE Number<L> max(Number<L> a, Number<L> b) {
  return {L::max(a.lanes, b.lanes)};
}
template <class L>
SPILLWAY_LANE Number<L> sign(Number<L> x) {
  return {L::sign(x.lanes)};
}

template <class L>
SPILLWAY_LANE Number<L> splat(double x) {
  return {L::splat(static_cast<typename L::Element>(x))};
}

template <class L>
SPILLWAY_LANE Scalars<Number<L>> splats(const Scalars<double>& s) {
  return {splat<L>(s.gradient_scale),  splat<L>(s.weight_decay),        splat<L>(s.decay),
          splat<L>(s.beta1),           splat<L>(s.one_minus_beta1),     splat<L>(s.beta2),
          splat<L>(s.one_minus_beta2), splat<L>(s.root_correction2),    splat<L>(s.eps),
          splat<L>(s.momentum),        splat<L>(s.one_minus_dampening), splat<L>(s.step_size)};
}

template <Rule kRule, class N>
SPILLWAY_LANE void step_sgd(N* x, N g, const Scalars<N>& s) {
  N& w = x[0];
  g = g + s.weight_decay * w;
  if constexpr (kRule != Rule::sgd) {
    N& b = x[1];
    b = b * s.momentum + s.one_minus_dampening * g;
    g = kRule == Rule::sgd_nesterov ? g + s.momentum * b : b;
  }
  w = w - s.step_size * g;
}

template <Rule kRule, class N>
SPILLWAY_LANE void step_adam(N* x, N g, const Scalars<N>& s) {
  N &w = x[0], &m = x[1], &v = x[2];
  if constexpr (kRule == Rule::adamw || kRule == Rule::adamw_amsgrad)
    w = w * s.decay;
  else
    g = g + s.weight_decay * w;
  m = m + (g - m) * s.one_minus_beta1;
  v = v * s.beta2 + s.one_minus_beta2 * (g * g);
  N top = v;
  // If v is NaN, the maximum of v becomes NaN too, and remains NaN.
  if constexpr (state_arrays(kRule) == 3) top = x[3] = max(x[3], v);
  w = w - s.step_size * (m / (sqrt(top) / s.root_correction2 + s.eps));
}

template <class N>
SPILLWAY_LANE void step_adagrad(N* x, N g, const Scalars<N>& s) {
  N &w = x[0], &sum = x[1];
  g = g + s.weight_decay * w;
  sum = sum + g * g;
  w = w - s.step_size * (g / (sqrt(sum) + s.eps));
}

template <Rule kRule, class N>
SPILLWAY_LANE void step_rmsprop(N* x, N g, const Scalars<N>& s) {
  constexpr bool kCentered = kRule == Rule::rmsprop_centered || kRule == Rule::rmsprop_centered_momentum;
  constexpr bool kMomentum = kRule == Rule::rmsprop_momentum || kRule == Rule::rmsprop_centered_momentum;
  N &w = x[0], &square = x[1];
  g = g + s.weight_decay * w;
  square = square * s.beta2 + s.one_minus_beta2 * (g * g);
  N variance = square;
  if constexpr (kCentered) {
    N& average = x[2];
    average = average + (g - average) * s.one_minus_beta2;
    variance = square - average * average;
  }
  N u = g / (sqrt(variance) + s.eps);
  if constexpr (kMomentum) {
    N& b = x[state_arrays(kRule)];
    u = b = b * s.momentum + u;
  }
  w = w - s.step_size * u;
}

template <class N>
SPILLWAY_LANE void step_lion(N* x, N g, const Scalars<N>& s) {
  N &w = x[0], &m = x[1];
  const N u = sign(m * s.beta1 + s.one_minus_beta1 * g);
  w = w * s.decay - s.step_size * u;
  m = m * s.beta2 + s.one_minus_beta2 * g;
}

/// Updates one element (or one vector of elements). x[0] is the weight, x[k]
/// the rule's k-th state: on entry the old values, on return the new ones.
template <Rule kRule, class N>
SPILLWAY_LANE void step(N* x, N gradient, const Scalars<N>& s) {
  const N g = gradient * s.gradient_scale;
  if constexpr (kRule == Rule::sgd || kRule == Rule::sgd_momentum || kRule == Rule::sgd_nesterov)
    step_sgd<kRule>(x, g, s);
  else if constexpr (kRule == Rule::adagrad)
    step_adagrad(x, g, s);
  else if constexpr (kRule == Rule::lion)
    step_lion(x, g, s);
  else if constexpr (kRule == Rule::adam || kRule == Rule::adam_amsgrad || kRule == Rule::adamw || kRule == Rule::adamw_amsgrad)
    step_adam<kRule>(x, g, s);
  else
    step_rmsprop<kRule>(x, g, s);
}

}  // namespace spillway::optim::SPILLWAY_ISA
