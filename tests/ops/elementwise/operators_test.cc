// Tests that operators such as + give bitwise the results of the ops that they stand for, with variables, tensors and numbers.
#include "ops/elementwise/operators.h"

#include "ops/elementwise/elementwise.h"
#include "tensor/create.h"
#include "tests/support/gradient_check.h"
#include "tests/support/sink.h"

namespace spillway::operators_test {
namespace {

using ops::Variable;
using Numbers = std::vector<double>;

TEST(Operators, AreTheirOps) {
  const Tensor a = test::random({2, 3}, DType::f32, 1), b = test::random({3}, DType::f32, 2);
  EXPECT_TRUE(test::same_bits((a + b).value, ops::add(a, b).value));
  EXPECT_TRUE(test::same_bits((a - b).value, ops::sub(a, b).value));
  EXPECT_TRUE(test::same_bits((a * b).value, ops::mul(a, b).value));
  EXPECT_TRUE(test::same_bits((a / b).value, ops::div(a, b).value));
  EXPECT_TRUE(test::same_bits((-a).value, ops::neg(a).value));
  EXPECT_TRUE(test::same_bits(a < b, ops::lt(a, b)));
  EXPECT_TRUE(test::same_bits(a == a, ones({2, 3}, DType::uint8)));
}

TEST(Operators, TakeNumbersOnEitherSide) {
  const Tensor x = tensor_of({1, 2, 4}, {3}, DType::f64);
  EXPECT_EQ(values_of((x + 1).value), (Numbers{2, 3, 5}));
  EXPECT_EQ(values_of((1 + x).value), (Numbers{2, 3, 5}));
  EXPECT_EQ(values_of((x - 1.5).value), (Numbers{-0.5, 0.5, 2.5}));
  EXPECT_EQ(values_of((1 - x).value), (Numbers{0, -1, -3}));
  EXPECT_EQ(values_of((x * 3).value), (Numbers{3, 6, 12}));
  EXPECT_EQ(values_of((3 * x).value), (Numbers{3, 6, 12}));
  EXPECT_EQ(values_of((x / 2).value), (Numbers{0.5, 1, 2}));
  EXPECT_EQ(values_of((2 / x).value), (Numbers{2, 1, 0.5}));
  EXPECT_EQ(values_of(x == 2), (Numbers{0, 1, 0}));
  EXPECT_EQ(values_of(x != 2), (Numbers{1, 0, 1}));
  EXPECT_EQ(values_of(x < 2), (Numbers{1, 0, 0}));
  EXPECT_EQ(values_of(x <= 2), (Numbers{1, 1, 0}));
  EXPECT_EQ(values_of(x > 2), (Numbers{0, 0, 1}));
  EXPECT_EQ(values_of(x >= 2), (Numbers{0, 1, 1}));
}

// x / 3 is a real division, not a product with a rounded reciprocal.
TEST(Operators, RoundOnce) {
  const Tensor x = tensor_of({5}, {1}, DType::f32);
  EXPECT_EQ((x / 3).value.item(), 5.f / 3.f);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor half = test::as(dtype, x), number = test::as(dtype, tensor_of({0.1}, {1}));
    EXPECT_TRUE(test::same_bits((half + 0.1).value, ops::add(half, number).value)) << to_string(dtype);
  }
}

TEST(Operators, Gradients) {
  const std::vector<Tensor> inputs{uniform({2, 3}, {1}, 1, 2, DType::f64), uniform({3}, {2}, 1, 2, DType::f64)};
  test::check_gradient(inputs, [](const auto& in) { return (in[0] + 2) * (1 - in[1]) / (in[0] * 3) - 2 / in[1] + -in[0] / 5; });
}

// The gradient of a bf16 or f16 parameter is f32. It equals the widened gradient of an input with equal values.
TEST(Operators, HalfParametersGetWideGradients) {
  const std::vector<test::Function> functions{[](const auto& in) {
                                                return in[0] * test::random({2, 3}, in[0].dtype(), 3);
                                              },
                                              [](const auto& in) { return 1 - in[0]; }, [](const auto& in) { return in[0] / 3 + 2; },
                                              [](const auto& in) { return in[0] * 3; }, [](const auto& in) { return ops::tanh(in[0]); }};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor w = test::random({2, 3}, dtype, 1), dy = test::random({2, 3}, dtype, 2);
    for (const test::Function& f : functions) {
      test::Sink sink;
      autograd::Tape tape(&sink), other;
      tape.backward(f({tape.parameter(w, 0)}), dy);
      const Variable input = other.input(w);
      other.backward(f({input}), dy);
      EXPECT_TRUE(test::same_bits(sink.gradients.at({0, 0}), test::as(DType::f32, other.take_gradient(input))));
    }
  }
}

TEST(Operators, SayWhatCame) {
  const Tensor a = zeros({2, 3}, DType::f32);
  EXPECT_EQ(test::refusal([&] { a + zeros({2}, DType::f32); }),
            "[add] expected inputs of the same dtype whose shapes broadcast, got f32 [2, 3] and f32 [2]");
  EXPECT_EQ(test::refusal([&] { a* zeros({3}, DType::f64); }),
            "[mul] expected inputs of the same dtype whose shapes broadcast, got f32 [2, 3] and f64 [3]");
}

}  // namespace
}  // namespace spillway::operators_test
