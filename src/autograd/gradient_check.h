// An op's or a model's gradients beside central differences in fp64: for whoever writes a backward.
//   GradientReport report = check_gradient([](const auto& in) { return my_op(in[0], in[1]); }, {x, w});
//   if (!report.good()) … report.text()
// With step h a difference is good to about h^2 f''' / 6 + 2^-53 |f| / h: 1e-9 of values around 1 at the default 1e-6, of which `tolerance`
// leaves the hundredfold. Where f has a kink (relu at 0, max of equals) there is no derivative to find: keep inputs away from it.
#pragma once
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace spillway::autograd {

struct GradientReport {
  // The worst element over all inputs: of that input, row by row.
  int input = 0;
  i64 element = 0;
  double backward = 0, difference = 0;  // what backward says there, and what central differences do
  double error = 0;                     // |backward - difference| / (1 + |difference|); NaN counts as infinite
  double tolerance = 0;
  i64 elements = 0;  // looked at
  bool good() const { return error <= tolerance; }
  /// "gradients of 24 elements agree within 1e-06; the worst, input 1, element 3: backward 0.5, difference 0.5, error 1e-10".
  std::string text() const;
};

struct GradientCheckOptions {
  double step = 1e-6, tolerance = 1e-6;
};

/// Of f, of f64 inputs of any shape, contiguous and on the CPU, whose values are changed and set back. The output, of any shape and f64, is
/// made one number that depends on each of its elements differently. An input that gets no gradient counts as one of zeros. Throws
/// Error(usage) on other inputs or another output.
GradientReport check_gradient(const std::function<Variable(const std::vector<Variable>&)>& f, const std::vector<Tensor>& inputs,
                              const GradientCheckOptions& options = {});

}  // namespace spillway::autograd
