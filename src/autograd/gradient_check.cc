#include "autograd/gradient_check.h"

#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace spillway::autograd {
namespace {

void require_f64(const Tensor& t, const std::string& what) {
  const bool fits = t.defined() && t.dtype() == DType::f64 && t.is_contiguous() && t.device() == Device::cpu();
  if (fits) return;
  throw Error(ErrorCode::usage, "[check_gradient] expected " + what + " of contiguous f64 on the CPU, got " +
                                    (t.defined() ? std::string(to_string(t.dtype())) + " " + to_string(t.shape()) : "none"));
}

// Returns the weight of an output element in the sum whose gradients are checked.
double weight(size_t element) { return std::cos(static_cast<double>(element)); }

double weighted(const Tensor& y) {
  double sum = 0;
  for (size_t i = 0; i < y.span<double>().size(); ++i) sum += y.span<double>()[i] * weight(i);
  return sum;
}

Tensor weights_of(const Tensor& y) {
  const Tensor dy = empty(y.shape(), DType::f64);
  for (size_t i = 0; i < dy.span<double>().size(); ++i) dy.span<double>()[i] = weight(i);
  return dy;
}

}  // namespace

std::string GradientReport::text() const {
  char text[256];
  std::snprintf(text, sizeof text,
                "gradients of %lld elements %s within %.3g; largest error at input %d, element %lld: backward %.12g, difference quotient "
                "%.12g, error %.3g",
                static_cast<long long>(elements), good() ? "agree" : "do not agree", tolerance, input, static_cast<long long>(element),
                backward, difference, error);
  return text;
}

GradientReport check_gradient(const std::function<Variable(const std::vector<Variable>&)>& f, const std::vector<Tensor>& inputs,
                              const GradientCheckOptions& options) {
  for (size_t n = 0; n < inputs.size(); ++n) require_f64(inputs[n], "input " + std::to_string(n));
  Tape tape;
  std::vector<Variable> variables;
  for (const Tensor& x : inputs) variables.push_back(tape.input(x));
  const Variable y = f(variables);
  require_f64(y.value, "an output");
  if (y.tape == &tape) tape.backward(y, weights_of(y.value));
  const std::vector<Variable> constants(inputs.begin(), inputs.end());
  GradientReport worst;
  worst.tolerance = options.tolerance;
  worst.error = -1;
  for (size_t n = 0; n < inputs.size(); ++n) {
    const Tensor gradient = tape.take_gradient(variables[n]);
    for (size_t i = 0; i < inputs[n].span<double>().size(); ++i, ++worst.elements) {
      double& x = inputs[n].span<double>()[i];
      const double at_x = x;
      x = at_x + options.step;
      const double above = weighted(f(constants).value);
      x = at_x - options.step;
      const double below = weighted(f(constants).value);
      x = at_x;
      const double backward = gradient.defined() ? gradient.span<double>()[i] : 0, difference = (above - below) / (2 * options.step);
      double error = std::abs(backward - difference) / (1 + std::abs(difference));
      if (std::isnan(error)) error = INFINITY;
      if (error <= worst.error) continue;
      worst.input = static_cast<int>(n), worst.element = static_cast<i64>(i);
      worst.backward = backward, worst.difference = difference, worst.error = error;
    }
  }
  if (worst.elements == 0) worst.error = 0;
  return worst;
}

}  // namespace spillway::autograd
