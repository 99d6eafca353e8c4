#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/pointwise.h"

#include <hwy/targets.h>

#include "base/error.h"
#include "kernels/accumulate.h"
#include "kernels/elementwise/dropout.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/reduce.h"
#include "kernels/sequence/embedding.h"
#include "tests/support/numbers.h"

namespace spillway::elementwise_test {
namespace {

using kernels::Unary;

struct Reference {
  Unary op;
  const char* name;
  double (*value)(double);
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
// Computes gelu with 0.5 (1 + tanh u) written as a sigmoid, which does not cancel for u << 0.
double gelu_tanh(double x) { return x * sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); }

const std::vector<Reference> kAll{{Unary::exp, "exp", [](double x) { return std::exp(x); }},
                                  {Unary::tanh, "tanh", [](double x) { return std::tanh(x); }},
                                  {Unary::sigmoid, "sigmoid", sigmoid},
                                  {Unary::silu, "silu", [](double x) { return x * sigmoid(x); }},
                                  {Unary::gelu_tanh, "gelu_tanh", gelu_tanh},
                                  {Unary::relu, "relu", [](double x) { return x > 0 ? x : 0; }},
                                  {Unary::relu_squared, "relu_squared", [](double x) { return x > 0 ? x * x : 0; }},
                                  {Unary::gelu_erf, "gelu_erf", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }}};

// Compares a function with its reference. The argument of the exponential grows like x (gelu's like x^3) and has a
// relative error of eps. The exponential makes that error absolute, hence the factor 1 + x^2 of the 4 eps. 1 + erf
// cancels in gelu_erf's left tail, as it does in PyTorch. A factor below the smallest normal number may come out as zero.
void check(const Reference& reference, DType dtype) {
  const Tensor x = test::random({1003}, dtype, 7, 8), y = empty({1003}, dtype);
  kernels::unary(reference.op, x, y);
  const double eps = dtype == DType::f64 ? 0x1p-52 : 0x1p-23, tiny = dtype == DType::f64 ? 0x1p-1022 : 0x1p-126;
  for (i64 i = 0; i < x.elems(); ++i) {
    const double at = test::at(x, i), want = reference.value(at), cancelled = reference.op == Unary::gelu_erf ? std::abs(at) : 0;
    if (dtype == DType::f16 && want >= 65520) {
      ASSERT_EQ(test::at(y, i), INFINITY) << reference.name << " of " << at;
      continue;
    }
    ASSERT_NEAR(
        test::at(y, i), want,
        4 * eps * (1 + at * at) * std::abs(want) + test::stored_error(dtype, want) + 4 * eps * cancelled + tiny * (1 + std::abs(at)))
        << reference.name << " of " << at;
  }
}

TEST(Elementwise, NearTheStandardLibraryOnEveryInstructionSet) {
  for (i64 targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const i64 target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const Reference& reference : kAll) {
      check(reference, DType::f32);
      check(reference, DType::f64);
      check(reference, DType::bf16);
      check(reference, DType::f16);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Elementwise, NotANumberStaysOneAndInfinitiesHaveLimits) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = tensor_of<float>(std::vector<float>{nan, inf, -inf, 1000, -1000}, {5}), y = empty({5}, DType::f32);
  const auto got = [&](Unary op) {
    kernels::unary(op, x, y);
    return y.span<float>();
  };
  for (const Reference& reference : kAll) EXPECT_TRUE(std::isnan(got(reference.op)[0])) << reference.name;
  EXPECT_EQ(got(Unary::exp)[1], inf);
  EXPECT_EQ(got(Unary::exp)[3], inf);
  EXPECT_EQ(got(Unary::exp)[2], 0);
  EXPECT_EQ(got(Unary::tanh)[1], 1);
  EXPECT_EQ(got(Unary::tanh)[4], -1);
  EXPECT_EQ(got(Unary::sigmoid)[3], 1);
  EXPECT_EQ(got(Unary::sigmoid)[4], 0);
  EXPECT_EQ(got(Unary::gelu_tanh)[3], 1000);
  EXPECT_EQ(got(Unary::gelu_tanh)[4], 0);
}

// An element's result is the same wherever the element lies in a vector, or behind the last whole vector.
TEST(Elementwise, AValueDoesNotDependOnItsPlace) {
  const Tensor x = test::random({200}, DType::f32, 3, 3), y = empty({200}, DType::f32), dx = empty({200}, DType::f32);
  for (const Reference& reference : kAll) {
    kernels::unary(reference.op, x, y);
    kernels::unary_gradient(reference.op, x, y, dx);
    for (i64 begin = 1; begin < 40; ++begin) {
      const i64 n = 37 + begin;
      const Tensor part = empty({n}, DType::f32), part_dx = empty({n}, DType::f32);
      kernels::unary(reference.op, x.slice(0, begin, begin + n), part);
      kernels::unary_gradient(reference.op, x.slice(0, begin, begin + n), part, part_dx);
      ASSERT_TRUE(test::same_bits(part, y.slice(0, begin, begin + n))) << reference.name;
      ASSERT_TRUE(test::same_bits(part_dx, dx.slice(0, begin, begin + n))) << reference.name;
    }
  }
}

class Halves : public ::testing::TestWithParam<DType> {};

// Gradient kernels in bf16 and f16 give the f32 results of the widened operands, rounded once.
TEST_P(Halves, GradientsAreTheF32OnesRounded) {
  const Tensor x = test::random({203}, GetParam(), 3, 3), dy = test::random({203}, GetParam(), 4), up = test::random({203}, GetParam(), 5);
  const Tensor wide_x = test::as(DType::f32, x), wide_dy = test::as(DType::f32, dy), wide_up = test::as(DType::f32, up);
  const auto pair = [](const auto& compute) {
    const Tensor narrow_one = empty({203}, GetParam()), wide_one = empty({203}, DType::f32);
    compute(narrow_one, wide_one);
    EXPECT_TRUE(test::same_bits(narrow_one, test::as(GetParam(), wide_one)));
  };
  for (const Reference& reference : kAll) {
    SCOPED_TRACE(reference.name);
    pair([&](const Tensor& to, const Tensor& wide) {
      kernels::unary_gradient(reference.op, x, dy, to);
      kernels::unary_gradient(reference.op, wide_x, wide_dy, wide);
    });
  }
  pair([&](const Tensor& to, const Tensor& wide) {
    kernels::glu(kernels::Glu::silu, x, up, to);
    kernels::glu(kernels::Glu::silu, wide_x, wide_up, wide);
  });
  for (const bool of_gate : {true, false}) {
    pair([&](const Tensor& to, const Tensor& wide) {
      kernels::glu_gradient(kernels::Glu::silu, x, up, dy, of_gate ? to : Tensor(), of_gate ? Tensor() : to);
      kernels::glu_gradient(kernels::Glu::silu, wide_x, wide_up, wide_dy, of_gate ? wide : Tensor(), of_gate ? Tensor() : wide);
    });
  }
  pair([&](const Tensor& to, const Tensor& wide) {
    kernels::scale(x, 0.3, to);
    kernels::scale(wide_x, 0.3, wide);
  });
}

// Sums of gradients and of residual streams widen their operands, add them, and round the sum once.
TEST_P(Halves, SumsAndWidenedCopies) {
  const Tensor a = test::random({4, 50}, GetParam(), 1), b = test::random({4, 50}, GetParam(), 2), sum = empty({4, 50}, GetParam());
  const Tensor wide = empty({4, 50}, DType::f32), row = test::random({50}, GetParam(), 3), stretched = empty({4, 50}, GetParam());
  const auto rounded = [](float x) { return GetParam() == DType::f16 ? widen(narrow<Float16>(x)) : widen(narrow<BFloat16>(x)); };
  kernels::add(a, b, sum);
  kernels::copy(a, wide);
  kernels::pointwise(kernels::Pointwise::mul, {a, row}, {}, stretched);
  for (i64 i = 0; i < 200; ++i) {
    const auto left = static_cast<float>(test::at(a, i));
    EXPECT_EQ(test::at(wide, i), left);
    EXPECT_EQ(test::at(sum, i), rounded(left + static_cast<float>(test::at(b, i))));
    EXPECT_EQ(test::at(stretched, i), rounded(left * static_cast<float>(test::at(row, i % 50))));
  }
  EXPECT_THROW(kernels::copy(wide, sum), Error) << "narrowing is never silent";
}

TEST_P(Halves, SumsAreWide) {
  for (const auto& [outer, n, inner] : std::vector<std::array<i64, 3>>{{1, 300, 65}, {7, 90, 1}, {1, 70000, 1}}) {
    const Tensor x = test::random({outer * n * inner}, GetParam(), 1);
    const Tensor wide = empty({outer * inner}, DType::f32), rounded = empty({outer * inner}, GetParam()),
                 want = empty({outer * inner}, DType::f32);
    kernels::sum_axis(x, outer, n, inner, 0.5, wide);
    kernels::sum_axis(x, outer, n, inner, 0.5, rounded);
    kernels::sum_axis(test::as(DType::f32, x), outer, n, inner, 0.5, want);
    EXPECT_TRUE(test::same_bits(wide, want));
    EXPECT_TRUE(test::same_bits(rounded, test::as(GetParam(), want)));
  }
}

INSTANTIATE_TEST_SUITE_P(Elementwise, Halves, ::testing::Values(DType::bf16, DType::f16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST(Dropout, IsTheUniformStreamOfBaseRandom) {
  const RandomKey key{0x9876543210ABCDEFu};
  const Tensor x = test::random({3, 5, 7}, DType::f32, 1), y = empty(x.shape(), DType::f32);
  constexpr i64 kFirst = (i64{1} << 33) + 11;  // sample numbers from kFirst on need more than 32 bits
  for (i64 targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    kernels::dropout(x, 0.3, key, kFirst, y);
    for (i64 i = 0; i < x.elems(); ++i) {
      const bool dropped = uniform(key, static_cast<u64>(kFirst + i / 35), static_cast<u64>(i % 35)) < 0.3;
      ASSERT_EQ(test::at(y, i), dropped ? 0.0F : static_cast<float>(test::at(x, i)) * static_cast<float>(1 / 0.7)) << i;
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  // Row 2 is computed again as the first row of another micro-batch, and must be bitwise the same.
  const Tensor alone = empty({1, 5, 7}, DType::f32);
  kernels::dropout(x.slice(0, 2, 3), 0.3, key, kFirst + 2, alone);
  EXPECT_TRUE(test::same_bits(alone, y.slice(0, 2, 3)));
  // Dropout numbers the elements of a sample. Elements in the middle of a large sample have numbers beyond 2^32.
  std::vector<double> far(13, 1);
  kernels::drop(key, 5, (i64{1} << 32) - 6, 13, 0.5, far.data());
  for (u64 i = 0; i < far.size(); ++i) EXPECT_EQ(far[i], uniform(key, 5, (u64{1} << 32) - 6 + i) < 0.5 ? 0 : 2) << i;
}

// Sums of dyadic numbers are exact, so the kernel's fixed partition must agree with the plain loop to the bit.
TEST(Embedding, GradientIsDenseAndAddsRepeats) {
  const Tensor ids = test::ints({4, 0, 4, 2, 4}, {5}), dout = test::random({5, 3}, DType::f32, 1),
               table = test::random({200, 3}, DType::f32, 2);
  kernels::embedding_gradient(ids, dout, -1, table);
  const auto from = dout.span<float>(), to = table.span<float>();
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(to[12 + c], (from[c] + from[6 + c]) + from[12 + c]);
    EXPECT_EQ(to[c], from[3 + c]);
    EXPECT_EQ(to[6 + c], from[9 + c]);
    for (size_t row : {1, 3, 5, 199}) EXPECT_EQ(to[row * 3 + c], 0);
  }
}

// Compares the vector code of normalization with a plain loop in fp64, on every instruction set and for lengths around those of vectors.
TEST(Norm, NearThePlainLoopOnEveryInstructionSet) {
  for (i64 targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    for (const i64 columns : {1, 7, 16, 33, 768}) {
      const Tensor x = test::random({3, columns}, DType::f32, 1), gamma = test::random({columns}, DType::f32, 2),
                   beta = test::random({columns}, DType::f32, 3);
      const Tensor y = empty(x.shape(), DType::f32), statistics = empty({3, 2}, DType::f32);
      kernels::norm(x, gamma, beta, 1e-5, y, statistics);
      for (i64 row = 0; row < 3; ++row) {
        double mean = 0, variance = 0;
        for (i64 c = 0; c < columns; ++c) mean += test::at(x, row * columns + c) / static_cast<double>(columns);
        for (i64 c = 0; c < columns; ++c) variance += std::pow(test::at(x, row * columns + c) - mean, 2) / static_cast<double>(columns);
        for (i64 c = 0; c < columns; ++c) {
          const double want = (test::at(x, row * columns + c) - mean) / std::sqrt(variance + 1e-5) * test::at(gamma, c) + test::at(beta, c);
          ASSERT_NEAR(test::at(y, row * columns + c), want, 1e-5 * (1 + std::abs(want)));
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace spillway::elementwise_test
