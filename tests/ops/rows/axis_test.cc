#include "ops/rows/axis.h"

#include "base/error.h"
#include "ops/elementwise/pointwise.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace spillway::axis_test {
namespace {

using ops::Variable;
using test::Function;

Tensor random(const Shape& shape, u64 seed, double std = 1) { return test::random(shape, DType::f64, seed, std); }

// Returns every op along an axis that has a gradient, applied along axis `at` of three.
std::vector<Function> along(int at) {
  return {[=](const auto& in) { return ops::max(in[0], {at}); },         [=](const auto& in) { return ops::min(in[0], {at}, true); },
          [=](const auto& in) { return ops::var(in[0], {at}); },         [=](const auto& in) { return ops::var(in[0], {at}, 0, true); },
          [=](const auto& in) { return ops::logsumexp(in[0], {at}); },   [=](const auto& in) { return ops::softmax(in[0], at); },
          [=](const auto& in) { return ops::log_softmax(in[0], at); },   [=](const auto& in) { return ops::cumsum(in[0], at); },
          [=](const auto& in) { return ops::topk(in[0], 2, at).values; }};
}

TEST(AlongAnAxis, Gradients) {
  for (const int at : {0, 1, -1}) {
    for (const Function& f : along(at)) test::check_gradient({random({3, 5, 7}, 1)}, f);
  }
  for (const ops::AxisList& axes : {ops::AxisList{}, {0, 2}, {1, -1}, {2, 0}}) {
    test::check_gradient({random({2, 3, 4, 3}, 2)}, [&](const auto& in) { return ops::max(in[0], axes); });
    test::check_gradient({random({2, 3, 4, 3}, 2)}, [&](const auto& in) { return ops::var(in[0], axes, 1, true); });
    test::check_gradient({random({2, 3, 4, 3}, 2)}, [&](const auto& in) { return ops::logsumexp(in[0], axes); });
  }
}

TEST(AlongAnAxis, OfViews) {
  for (const int at : {0, 1, -1}) {
    for (const Function& f : along(at)) test::check_views({random({3, 5, 7}, 1)}, f);
  }
  const Tensor x = random({3, 5, 7}, 1);
  EXPECT_TRUE(test::same_bits(ops::argmax(test::turned(x), 1), ops::argmax(x, 1)));
}

TEST(AlongAnAxis, SameBitsOnAnyThreads) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int at : {0, 1, 2}) {
      test::check_threads([=] {
        autograd::Tape tape;
        std::vector<Tensor> results;
        for (const Function& f : along(at)) {
          const Variable x = tape.input(test::random({30, 70, 33}, dtype, 1)), y = f({x});
          tape.backward(y, y.value);
          results.push_back(y.value), results.push_back(tape.take_gradient(x));
        }
        results.push_back(ops::argmin(test::random({30, 70, 33}, dtype, 1), at));
        return results;
      });
    }
  }
}

// Compares ops in bf16 and f16 with fp64 on the widened inputs: an op computes in f32 or wider and rounds once.
TEST(AlongAnAxis, Halves) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const Function& f : along(1)) {
      const auto run = [&](DType as) {
        autograd::Tape tape;
        const Variable x = tape.input(test::as(as, test::random({4, 37, 3}, dtype, 1))), y = f({x});
        tape.backward(y, test::as(as, test::random(y.shape(), dtype, 2)));
        return std::pair(y.value, tape.take_gradient(x));
      };
      const auto narrow = run(dtype), wide = run(DType::f64);
      EXPECT_EQ(narrow.first.dtype(), dtype);
      test::expect_near(narrow.first, wide.first, test::half_ulp(dtype), 4e-6, "output");
      test::expect_near(narrow.second, wide.second, test::half_ulp(dtype), 4e-6, "gradient");
    }
  }
}

TEST(AlongAnAxis, FirstOfEqualsAndNotANumberBeforeAll) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const Tensor rows = tensor_of<double>(std::vector<double>{2, 5, 5, 1, 1, nan, 9, nan, -inf, -inf, -inf, -inf}, {3, 4});
  const auto places = [](const Tensor& t) { return std::vector<i32>(t.span<i32>().begin(), t.span<i32>().end()); };
  EXPECT_EQ(places(ops::argmax(rows, 1)), (std::vector<i32>{1, 1, 0}));
  EXPECT_EQ(places(ops::argmin(rows, -1, true)), (std::vector<i32>{3, 1, 0}));
  EXPECT_EQ(ops::argmin(rows, -1, true).shape(), Shape({3, 1}));
  EXPECT_EQ(places(ops::topk(rows, 3).index), (std::vector<i32>{1, 2, 0, 1, 3, 2, 0, 1, 2}));
  EXPECT_TRUE(std::isnan(ops::max(rows).value.item()));
  autograd::Tape tape;
  const Variable x = tape.input(rows.slice(0, 0, 1));
  ops::max(x).backward();
  const Tensor dx = tape.take_gradient(x);
  for (i64 i = 0; i < 4; ++i) EXPECT_EQ(test::at(dx, i), i == 1) << i;
}

TEST(AlongAnAxis, LargeNumbersKeepTheirDigits) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = test::as(dtype, tensor_of<double>(std::vector<double>{30000, 30001, 29999}, {3}));
    const double total = std::exp(-1.0) + 1 + std::exp(-2.0), eps = 4 * test::half_ulp(dtype);
    EXPECT_NEAR(test::at(ops::log_softmax(x, 0).value, 0), -1 - std::log(total), eps);
    EXPECT_NEAR(test::at(ops::softmax(x, 0).value, 2), std::exp(-2.0) / total, eps);
    EXPECT_NEAR(ops::logsumexp(x, {0}).value.item(), 30001 + std::log(total), 30001 * eps);
  }
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ops::logsumexp(tensor_of<double>(std::vector<double>{-inf, -inf}, {2}), {0}).value.item(), -inf);
}

TEST(AlongAnAxis, RefusesAndSaysWhatCame) {
  const Tensor x = random({2, 3}, 1);
  EXPECT_EQ(test::refusal([&] { ops::softmax(x, 2); }), "[softmax] expected an axis of the tensor, not 2, got f64 [2, 3]");
  EXPECT_EQ(test::refusal([&] { ops::var(x, {0, -2}); }), "[var] expected each axis once, not -2 again, got f64 [2, 3]");
  EXPECT_EQ(test::refusal([&] { ops::topk(x, 4); }), "[topk] expected a count from 1 to the length of the axis, not 4, got f64 [2, 3]");
  EXPECT_EQ(test::refusal([&] {
              ops::argmax(empty({2, 0}, DType::f32), 1);
            }),
            "[argmax] expected an axis with at least one element, not axis 1, got f32 [2, 0]");
}

}  // namespace
}  // namespace spillway::axis_test
