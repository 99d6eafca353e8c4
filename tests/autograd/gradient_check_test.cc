// Tests that the gradient check finds a wrong gradient and tells its place, that hooks see and change gradients, and that NoGrad records no
// op.
#include "autograd/gradient_check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/hook.h"
#include "autograd/no_grad.h"
#include "base/error.h"
#include "tensor/create.h"

namespace spillway::autograd::gradient_check_test {
namespace {

// Returns x^3 of each element. At element 2 its gradient is wrong by `wrong`.
Variable cube(const Variable& x, double wrong = 0) {
  const Tensor y = empty(x.shape(), DType::f64);
  for (size_t i = 0; i < y.span<double>().size(); ++i) y.span<double>()[i] = std::pow(x.value.span<double>()[i], 3);
  Recorder r({x});
  const SavedTensor kept = r.save(x);
  return r.output(y, [=](Backward& b) {
    const auto at = b.saved(kept).span<double>(), dy = b.gradient().span<double>(), dx = b.target(0).span<double>();
    for (size_t i = 0; i < dx.size(); ++i) dx[i] = dy[i] * 3 * at[i] * at[i] + (i == 2 ? wrong : 0);
  });
}

const Tensor& numbers() {
  static const Tensor x = uniform({2, 3}, {1}, 1, 2, DType::f64);
  return x;
}

TEST(GradientCheck, AgreesWithARightBackward) {
  const GradientReport report = check_gradient([](const auto& in) { return cube(in[0]); }, {numbers()});
  EXPECT_TRUE(report.good()) << report.text();
  EXPECT_EQ(report.elements, 6);
  EXPECT_LT(report.error, 1e-8);
}

TEST(GradientCheck, NamesTheWorstElement) {
  const std::vector<double> before = values_of(numbers());
  const GradientReport report = check_gradient([](const auto& in) { return cube(in[1], 1e-3); }, {full({4}, 1, DType::f64), numbers()});
  EXPECT_FALSE(report.good());
  EXPECT_EQ(report.input, 1);
  EXPECT_EQ(report.element, 2);
  EXPECT_NEAR(report.backward - report.difference, 1e-3, 1e-7);
  EXPECT_NE(report.text().find("gradients of 10 elements do not agree within 1e-06; largest error at input 1, element 2: backward "),
            std::string::npos)
      << report.text();
  EXPECT_EQ(values_of(numbers()), before) << "inputs are set back";
}

TEST(GradientCheck, AMissingGradientIsZeros) {
  const auto constant = [](const std::vector<Variable>& in) { return cube(in[0].value); };
  EXPECT_FALSE(check_gradient(constant, {numbers()}).good());
}

TEST(GradientCheck, NotANumberIsTheWorst) {
  const GradientReport report = check_gradient([](const auto& in) { return cube(in[0], NAN); }, {numbers()});
  EXPECT_FALSE(report.good());
  EXPECT_EQ(report.element, 2);
}

TEST(GradientCheck, RefusesOtherTypes) {
  try {
    check_gradient([](const auto& in) { return in[0]; }, {numbers(), ones({2})});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[check_gradient] expected input 1 of contiguous f64 on the CPU, got f32 [2]");
  }
}

TEST(Hook, SeesAndChangesWhatFlowsBack) {
  Tape tape;
  const Variable x = tape.input(numbers());
  std::vector<double> seen;
  const Variable hooked = with_hook(x, [&](const Tensor& gradient) {
    seen = values_of(gradient);
    return full(gradient.shape(), 7, DType::f64);
  });
  tape.backward(cube(hooked), full({2, 3}, 2, DType::f64));
  for (size_t i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(seen[i], 6 * values_of(numbers())[i] * values_of(numbers())[i]);
  EXPECT_EQ(values_of(tape.take_gradient(x)), std::vector<double>(6, 7));
}

TEST(Hook, RefusesAnotherShape) {
  Tape tape;
  const Variable y = cube(with_hook(tape.input(numbers()), [](const Tensor&) { return zeros({6}, DType::f64); }));
  try {
    tape.backward(y, numbers());
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[with_hook] expected a gradient of f64 [2, 3] from the hook, got f64 [6]");
  }
}

TEST(NoGrad, RecordsNothing) {
  Tape tape;
  const Variable x = tape.input(numbers());
  {
    const NoGrad outer;
    {
      const NoGrad inner;
      EXPECT_FALSE(cube(x).needs_gradient());
    }
    EXPECT_FALSE(cube(x).needs_gradient());
    EXPECT_EQ(tape.saved_bytes(), 0);
  }
  const Variable y = cube(x);
  EXPECT_TRUE(y.needs_gradient());
  tape.backward(y, numbers());
  EXPECT_TRUE(tape.take_gradient(x).defined());
}

}  // namespace
}  // namespace spillway::autograd::gradient_check_test
