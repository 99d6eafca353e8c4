#include "nn/parameter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace spillway::nn::parameter_test {
namespace {

using Values = std::vector<double>;

Values drawn(const Parameter& parameter, u64 seed, i64 begin, i64 end) {
  Values values(static_cast<size_t>(end - begin));
  initial_values(parameter, seed, begin, values);
  return values;
}

TEST(InitialValues, AreTheSameForEveryCutOfTheRange) {
  const auto p = make_parameter("h.0.weight", {37, 29}, DType::f32, {Initializer::Kind::normal, 0.5});
  const Values whole = drawn(*p, 7, 0, p->elems());
  for (const i64 piece : {1, 3, 64, 500}) {
    for (i64 begin = 0; begin < p->elems(); begin += piece) {
      const i64 end = std::min(p->elems(), begin + piece);
      ASSERT_EQ(drawn(*p, 7, begin, end), Values(whole.begin() + begin, whole.begin() + end)) << "piece " << piece << " at " << begin;
    }
  }
}

TEST(InitialValues, HaveTheMeanAndDeviationAsked) {
  const auto p = make_parameter("w", {400, 1000}, DType::f32, {Initializer::Kind::normal, 0.02});
  const Values values = drawn(*p, 1337, 0, p->elems());
  const double n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0, fourth = 0;
  for (double x : values) {
    squares += (x - mean) * (x - mean);
    fourth += std::pow(x / 0.02, 4);
  }
  // The tolerance is five standard errors of n normal numbers: std/sqrt(n) for the
  // mean, std/sqrt(2n) for the deviation, and sqrt(96/n) for the fourth moment.
  EXPECT_NEAR(mean, 0, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 5 * 0.02 / std::sqrt(2 * n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96 / n));
}

TEST(InitialValues, DependOnSeedAndNameButNotOnShapeOrId) {
  auto a = make_parameter("a", {8}, DType::f32, {Initializer::Kind::normal, 1});
  auto reshaped = make_parameter("a", {2, 8}, DType::f64, {Initializer::Kind::normal, 1});
  reshaped->id = 5;
  const auto b = make_parameter("b", {8}, DType::f32, {Initializer::Kind::normal, 1});
  EXPECT_EQ(drawn(*a, 1, 0, 8), drawn(*reshaped, 1, 0, 8));
  EXPECT_NE(drawn(*a, 1, 0, 8), drawn(*a, 2, 0, 8));
  EXPECT_NE(drawn(*a, 1, 0, 8), drawn(*b, 1, 0, 8));
}

TEST(InitialValues, ZerosAndOnesAreExact) {
  EXPECT_EQ(drawn(*make_parameter("z", {3}, DType::f32, {Initializer::Kind::zeros}), 1, 0, 3), Values(3, 0.0));
  EXPECT_EQ(drawn(*make_parameter("o", {3}, DType::f32, {Initializer::Kind::ones}), 1, 1, 3), Values(2, 1.0));
}

TEST(InitialValues, AreThoseThatAProgramGives) {
  const auto parameter = make_parameter("w", {4}, DType::f32, {Initializer::Kind::ones});
  parameter->given = [](i64 begin, std::span<double> out) {
    for (double& value : out) value = static_cast<double>(10 * begin++);
  };
  std::vector<double> values(2);
  initial_values(*parameter, 1, 2, values);
  EXPECT_EQ(values, (std::vector<double>{20, 30}));
}

TEST(InitialValues, RefuseARangeOutsideTheParameter) {
  const auto p = make_parameter("w", {4}, DType::f32, {});
  Values values(3);
  EXPECT_THROW(initial_values(*p, 1, 2, values), Error);
  EXPECT_THROW(initial_values(*p, 1, -1, values), Error);
}

TEST(Parameter, IsVacantUntilFilled) {
  const auto p = make_parameter("w", {4, 2}, DType::f64, {});
  EXPECT_EQ(p->storage->bytes(), 64);
  EXPECT_FALSE(p->storage->resident());
  EXPECT_THROW(p->value().raw(), Error);
  const Tensor memory = zeros({4, 2}, DType::f64);
  p->storage->fill(memory.raw());
  EXPECT_EQ(p->value().raw(), memory.raw());
  p->storage->drop();
}

}  // namespace
}  // namespace spillway::nn::parameter_test
