// Compares the clamped gated linear unit with its definition, at the limits and beyond them too.
#include "kernels/elementwise/clamped_glu.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tests/support/numbers.h"

namespace spillway::clamped_glu_test {
namespace {

constexpr kernels::GluClamp kClamp{.slope = 1.702, .limit = 0.75};

struct Results {
  Tensor y, dgate, dup;
};

Results run(const Tensor& gate, const Tensor& up, const Tensor& dy) {
  const Results r{empty(gate.shape(), gate.dtype()), empty(gate.shape(), gate.dtype()), empty(gate.shape(), gate.dtype())};
  kernels::clamped_glu(kClamp, gate, up, r.y);
  kernels::clamped_glu_gradient(kClamp, gate, up, dy, r.dgate, r.dup);
  return r;
}

TEST(ClampedGlu, IsItsDefinition) {
  for (const i64 n : {1, 7, 40, 333}) {
    const Tensor gate = test::random({n}, DType::f64, 1), up = test::random({n}, DType::f64, 2), dy = test::random({n}, DType::f64, 3);
    gate.data<double>()[0] = kClamp.limit, up.data<double>()[0] = -kClamp.limit;  // PyTorch's clamp passes gradients at its limits
    const Results got = run(gate, up, dy);
    for (i64 i = 0; i < n; ++i) {
      const double raw_gate = test::at(gate, i), raw_up = test::at(up, i), d = test::at(dy, i);
      const double g = std::min(raw_gate, kClamp.limit), u = std::clamp(raw_up, -kClamp.limit, kClamp.limit);
      const double s = 1 / (1 + std::exp(-kClamp.slope * g));
      EXPECT_NEAR(test::at(got.y, i), (u + 1) * g * s, 1e-15) << i;
      EXPECT_NEAR(test::at(got.dup, i), std::abs(raw_up) <= kClamp.limit ? d * g * s : 0, 1e-15) << i;
      const double slope = s + g * kClamp.slope * s * (1 - s);
      EXPECT_NEAR(test::at(got.dgate, i), raw_gate <= kClamp.limit ? d * (u + 1) * slope : 0, 4e-15) << i;
    }
  }
}

TEST(ClampedGlu, NarrowTypesAreTheF32OnesRounded) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor gate = test::random({203}, dtype, 1), up = test::random({203}, dtype, 2), dy = test::random({203}, dtype, 3);
    const auto wide = [](const Tensor& t) { return test::as(DType::f32, t); };
    const Results got = run(gate, up, dy), want = run(wide(gate), wide(up), wide(dy));
    EXPECT_TRUE(test::same_bits(got.y, test::as(dtype, want.y)));
    EXPECT_TRUE(test::same_bits(got.dgate, test::as(dtype, want.dgate)));
    EXPECT_TRUE(test::same_bits(got.dup, test::as(dtype, want.dup)));
  }
}

TEST(ClampedGlu, OneGradientAloneIsThatOfBoth) {
  const Tensor gate = test::random({50}, DType::f32, 1), up = test::random({50}, DType::f32, 2), dy = test::random({50}, DType::f32, 3);
  const Results both = run(gate, up, dy);
  const Tensor dgate = empty({50}, DType::f32), dup = empty({50}, DType::f32);
  kernels::clamped_glu_gradient(kClamp, gate, up, dy, dgate, {});
  kernels::clamped_glu_gradient(kClamp, gate, up, dy, {}, dup);
  EXPECT_TRUE(test::same_bits(dgate, both.dgate));
  EXPECT_TRUE(test::same_bits(dup, both.dup));
}

TEST(ClampedGlu, NaNShowsInTheResultAndHasNoGradient) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto two = [](double a, double b) { return tensor_of<double>(std::vector<double>{a, b}, {2}); };
  const Tensor gate = two(nan, 0.5), up = two(0.5, nan), dy = two(1, 1);
  const Results got = run(gate, up, dy);
  EXPECT_TRUE(std::isnan(test::at(got.y, 0)));
  EXPECT_TRUE(std::isnan(test::at(got.y, 1)));
  EXPECT_EQ(test::at(got.dgate, 0), 0);
  EXPECT_EQ(test::at(got.dup, 1), 0);
}

TEST(ClampedGlu, RefusesWhatDoesNotFit) {
  const Tensor x = test::random({4}, DType::f32, 1), y = empty({4}, DType::f32);
  EXPECT_THROW(kernels::clamped_glu({.limit = 0}, x, x, y), Error);
  EXPECT_THROW(kernels::clamped_glu(kClamp, x, test::random({3}, DType::f32, 1), y), Error);
}

}  // namespace
}  // namespace spillway::clamped_glu_test
