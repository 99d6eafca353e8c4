// Compares the gradients of an op or a model with central differences in fp64. The check is meant for authors of a backward function.
//   GradientReport report = check_gradient([](const auto& in) { return my_op(in[0], in[1]); }, {x, w});
//   if (!report.good()) … report.text()
// With step h, a central difference is accurate to about h^2 f''' / 6 + 2^-53 |f| / h: 1e-9 for values around 1 at the default step
// 1e-6. The default `tolerance` allows a hundred times that or more. Where f has a kink (relu at 0, max of equal values) no
// derivative exists, so keep inputs away from such points.
#pragma once
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace spillway::autograd {

struct GradientReport {
  // `input` and `element` name the element with the largest error over all inputs:
  // the index of the input, and the element's row-major index in that input.
  int input = 0;
  i64 element = 0;
  double backward = 0, difference = 0;  // the gradient at that element, by backward and by central differences
  double error = 0;                     // the error, |backward - difference| / (1 + |difference|); NaN counts as infinite
  double tolerance = 0;
  i64 elements = 0;  // the number of elements compared
  bool good() const { return error <= tolerance; }
  /// Returns "gradients of 24 elements agree within 1e-06; largest error at input 1, element 3: backward 0.5, difference quotient 0.5,
  /// error 1e-10".
  std::string text() const;
};

struct GradientCheckOptions {
  double step = 1e-6, tolerance = 1e-6;
};

/// Checks the gradients of f. The inputs are f64 tensors of any shape, contiguous and on the CPU; their values are changed during the check
/// and restored. The output, also f64 and of any shape, is reduced to a sum in which each element has a different weight, and the gradients
/// are those of this sum. An input that gets no gradient counts as having a gradient of zeros. Throws Error(usage) for other inputs or
/// outputs.
GradientReport check_gradient(const std::function<Variable(const std::vector<Variable>&)>& f, const std::vector<Tensor>& inputs,
                              const GradientCheckOptions& options = {});

}  // namespace spillway::autograd
