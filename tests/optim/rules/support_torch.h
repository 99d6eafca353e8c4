// Computes the update rules as torch.optim (for Lion, its paper) writes them down, directly from the settings. The
// number type N is a parameter: floats rounded operation by operation, or numbers that carry a bound of their error.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <variant>
#include <vector>

#include "optim/rules/settings.h"

namespace spillway::test {

using optim::rule_of;
using Settings = optim::RuleSettings;

inline optim::Scalars<double> scalars_of(const Settings& settings, i64 t, double gradient_scale) {
  return std::visit([&](const auto& s) { return optim::make_scalars(s, t, gradient_scale); }, settings);
}
inline double initial_state(const Settings& settings) {
  const auto* adagrad = std::get_if<optim::AdagradSettings>(&settings);
  return adagrad ? adagrad->initial_accumulator_value : 0;
}

/// Represents a float whose operations are done in fp64 and then rounded. For +, -, *, / and sqrt
/// this is the correctly rounded result (53 >= 2 * 24 + 2 bits), whatever the compiler does.
struct Rounded {
  double x;
  Rounded(double value) : x(static_cast<float>(value)) {}
};
inline Rounded operator+(Rounded a, Rounded b) { return a.x + b.x; }
inline Rounded operator-(Rounded a, Rounded b) { return a.x - b.x; }
inline Rounded operator*(Rounded a, Rounded b) { return a.x * b.x; }
inline Rounded operator/(Rounded a, Rounded b) { return a.x / b.x; }
inline Rounded sqrt(Rounded a) { return std::sqrt(a.x); }
inline Rounded larger(Rounded a, Rounded b) { return a.x > b.x ? a : b; }
inline Rounded sign(Rounded a) { return a.x > 0 ? 1 : a.x < 0 ? -1 : a; }

/// Holds a value, and a bound on the error of computing it in T with each operation rounded (Wilkinson's running error analysis).
template <class T>
struct Bounded {
  static constexpr double u = std::numeric_limits<T>::epsilon() / 2;
  double x, error;
  /// Makes a constant that is rounded to T.
  Bounded(double value) : x(value), error(u * std::abs(value)) {}
  static Bounded of(double value, double error) {
    Bounded result(value);
    result.error = error;
    return result;
  }
  static Bounded rounded(double value, double error) { return of(value, error + u * (std::abs(value) + error)); }
};
template <class T>
Bounded<T> operator+(Bounded<T> a, Bounded<T> b) {
  return Bounded<T>::rounded(a.x + b.x, a.error + b.error);
}
template <class T>
Bounded<T> operator-(Bounded<T> a, Bounded<T> b) {
  return Bounded<T>::rounded(a.x - b.x, a.error + b.error);
}
template <class T>
Bounded<T> operator*(Bounded<T> a, Bounded<T> b) {
  return Bounded<T>::rounded(a.x * b.x, std::abs(a.x) * b.error + std::abs(b.x) * a.error + a.error * b.error);
}
template <class T>
Bounded<T> operator/(Bounded<T> a, Bounded<T> b) {
  const double least = std::abs(b.x) - b.error;
  const double error = least > 0 ? (a.error + std::abs(a.x / b.x) * b.error) / least : std::numeric_limits<double>::infinity();
  return Bounded<T>::rounded(a.x / b.x, error);
}
template <class T>
Bounded<T> sqrt(Bounded<T> a) {
  const double root = std::sqrt(a.x);
  return Bounded<T>::rounded(root, root - std::sqrt(std::max(0.0, a.x - a.error)));
}
template <class T>
Bounded<T> larger(Bounded<T> a, Bounded<T> b) {
  return Bounded<T>::of(std::max(a.x, b.x), std::max(a.error, b.error));
}
template <class T>
Bounded<T> sign(Bounded<T> a) {
  return Bounded<T>::of(a.x > 0 ? 1 : a.x < 0 ? -1 : 0, std::abs(a.x) > a.error ? 0 : 2);
}

template <class N>
void torch_step(const optim::SgdSettings& o, i64 t, N grad, N& param, std::vector<N>& state) {
  grad = grad + N(o.weight_decay) * param;
  if (o.momentum != 0) {
    N& buf = state[0];
    buf = buf * N(o.momentum) + N(t == 1 ? 1 : 1 - o.dampening) * grad;
    grad = o.nesterov ? grad + N(o.momentum) * buf : buf;
  }
  param = param - N(o.lr) * grad;
}

template <class N>
void torch_step(const optim::AdamSettings& o, i64 t, N grad, N& param, std::vector<N>& state) {
  if (o.decoupled_weight_decay)
    param = param * N(1 - o.lr * o.weight_decay);
  else
    grad = grad + N(o.weight_decay) * param;
  N &exp_avg = state[0], &exp_avg_sq = state[1];
  exp_avg = exp_avg + (grad - exp_avg) * N(1 - o.beta1);
  exp_avg_sq = exp_avg_sq * N(o.beta2) + N(1 - o.beta2) * (grad * grad);
  const double bias_correction1 = 1 - std::pow(o.beta1, static_cast<double>(t));
  const double bias_correction2 = 1 - std::pow(o.beta2, static_cast<double>(t));
  if (o.amsgrad) state[2] = larger(state[2], exp_avg_sq);
  const N denom = sqrt(o.amsgrad ? state[2] : exp_avg_sq) / N(std::sqrt(bias_correction2)) + N(o.eps);
  param = param - N(o.lr / bias_correction1) * (exp_avg / denom);
}

template <class N>
void torch_step(const optim::AdagradSettings& o, i64 t, N grad, N& param, std::vector<N>& state) {
  grad = grad + N(o.weight_decay) * param;
  state[0] = state[0] + grad * grad;
  param = param - N(o.lr / (1 + static_cast<double>(t - 1) * o.lr_decay)) * (grad / (sqrt(state[0]) + N(o.eps)));
}

template <class N>
void torch_step(const optim::RmspropSettings& o, i64, N grad, N& param, std::vector<N>& state) {
  grad = grad + N(o.weight_decay) * param;
  N& square_avg = state[0];
  square_avg = square_avg * N(o.alpha) + N(1 - o.alpha) * (grad * grad);
  N avg = square_avg;
  if (o.centered) {
    N& grad_avg = state[1];
    grad_avg = grad_avg + (grad - grad_avg) * N(1 - o.alpha);
    avg = square_avg - grad_avg * grad_avg;
  }
  N step = grad / (sqrt(avg) + N(o.eps));
  if (o.momentum != 0) step = state.back() = state.back() * N(o.momentum) + step;
  param = param - N(o.lr) * step;
}

template <class N>
void torch_step(const optim::LionSettings& o, i64, N grad, N& param, std::vector<N>& state) {
  N& m = state[0];
  const N u = sign(m * N(o.beta1) + N(1 - o.beta1) * grad);
  param = param * N(1 - o.lr * o.weight_decay) - N(o.lr) * u;
  m = m * N(o.beta2) + N(1 - o.beta2) * grad;
}

/// Adafactor does not work element by element, so this overload throws. tests/eager/adafactor_test.cc tests Adafactor.
template <class N>
void torch_step(const optim::AdafactorSettings&, i64, N, N&, std::vector<N>&) {
  throw std::logic_error("adafactor is no rule of single elements");
}
/// Muon does not work element by element, so this overload throws. tests/optim/matrices/muon_test.cc tests Muon.
template <class N>
void torch_step(const optim::MuonSettings&, i64, N, N&, std::vector<N>&) {
  throw std::logic_error("muon is no rule of single elements");
}

}  // namespace spillway::test
