#include "ops/elementwise/pointwise.h"

#include "base/error.h"
#include "ops/elementwise/elementwise.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace spillway::pointwise_test {
namespace {

using ops::Variable;
using test::Function;

Tensor random(const Shape& shape, u64 seed) { return test::random(shape, DType::f64, seed); }

Tensor positive(const Shape& shape, u64 seed) {
  const Tensor x = random(shape, seed);
  for (double& v : x.span<double>()) v = std::abs(v) + 0.1;
  return x;
}

Tensor mask_of(const std::vector<u8>& values, const Shape& shape) { return tensor_of<u8>(values, shape); }

// of_one() returns every op with one input, of_two() every op with two inputs. The random elements avoid the points where a derivative
// jumps.
const std::vector<Function>& of_one() {
  static const std::vector<Function> all{[](const auto& in) { return ops::abs(in[0]); },
                                         [](const auto& in) { return ops::neg(in[0]); },
                                         [](const auto& in) { return ops::pow(in[0], 2); },
                                         [](const auto& in) { return ops::pow(in[0], 3); },
                                         [](const auto& in) { return ops::pow(in[0], 0); },
                                         [](const auto& in) { return ops::clamp(in[0], -0.7, 0.6); },
                                         [](const auto& in) { return ops::clamp(in[0], 0.1); },
                                         [](const auto& in) { return ops::leaky_relu(in[0], 0.3); },
                                         [](const auto& in) { return ops::elu(in[0], 0.7); },
                                         [](const auto& in) { return ops::softplus(in[0], 2, 3); },
                                         [](const auto& in) { return ops::hardswish(in[0]); },
                                         [](const auto& in) { return ops::mish(in[0]); },
                                         [](const auto& in) { return ops::masked_fill(in[0], ops::gt(in[0], 0.3), -5); }};
  return all;
}
const std::vector<Function>& of_two() {
  static const std::vector<Function> all{[](const auto& in) { return ops::pow(ops::abs(in[0]), in[1]); },
                                         [](const auto& in) { return ops::maximum(in[0], in[1]); },
                                         [](const auto& in) { return ops::minimum(in[0], in[1]); },
                                         [](const auto& in) { return ops::where(ops::lt(in[0], in[1]), in[0], in[1]); }};
  return all;
}
const std::vector<std::pair<Shape, Shape>>& shapes() {
  static const std::vector<std::pair<Shape, Shape>> all{
      {{5, 7}, {5, 7}}, {{3, 1, 5}, {7, 1}}, {{}, {2, 3}}, {{4, 3}, {1}}, {{1, 3}, {2, 3, 1}}};
  return all;
}

TEST(Pointwise, Gradients) {
  for (const Function& f : of_one()) test::check_gradient({random({3, 5, 7}, 1)}, f);
  test::check_gradient({positive({3, 7}, 1)}, [](const auto& in) { return ops::pow(in[0], -1.5); });
  // The cubes give hardswish() inputs beyond 3 too, where its formula changes.
  test::check_gradient({random({3, 7}, 1)}, [](const auto& in) { return ops::hardswish(ops::pow(in[0], 3)); });
  for (const auto& [first, second] : shapes()) {
    SCOPED_TRACE(to_string(first) + to_string(second));
    for (const Function& f : of_two()) test::check_gradient({random(first, 1), random(second, 2)}, f);
  }
}

TEST(Pointwise, MaskThatStretches) {
  const Tensor mask = mask_of({1, 0, 0, 1, 1}, {5, 1});
  test::check_gradient({random({3}, 1), random({2, 5, 3}, 2)}, [&](const auto& in) { return ops::where(mask, in[0], in[1]); });
  test::check_gradient({random({2, 5, 3}, 2)}, [&](const auto& in) { return ops::masked_fill(in[0], mask, 4); });
  const Tensor filled = ops::masked_fill(random({2, 5, 3}, 2), mask, 4).value, x = random({2, 5, 3}, 2);
  for (i64 i = 0; i < 30; ++i) EXPECT_EQ(test::at(filled, i), mask.span<u8>()[static_cast<size_t>(i / 3 % 5)] ? 4 : test::at(x, i));
}

TEST(Pointwise, OfViews) {
  for (const Function& f : of_one()) test::check_views({random({3, 5, 7}, 1)}, f);
  for (const auto& [first, second] : shapes()) {
    for (const Function& f : of_two()) test::check_views({random(first, 1), random(second, 2)}, f);
  }
  const Tensor x = random({3, 5, 7}, 1), y = random({3, 5, 7}, 2);
  EXPECT_TRUE(test::same_bits(ops::ge(x, y), ops::ge(test::turned(x), y)));
  const Tensor mask = ops::ge(x, y);
  EXPECT_TRUE(test::same_bits(ops::where(test::turned(mask), x, y).value, ops::where(mask, x, y).value));
}

TEST(Pointwise, SameBitsOnAnyThreads) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    test::check_threads([=] {
      const Tensor x = test::random({300, 257}, dtype, 1), row = test::random({257}, dtype, 2);
      return std::vector<Tensor>{ops::pow(x, 3).value, ops::maximum(x, row).value, ops::lt(x, row),
                                 ops::where(ops::lt(x, row), row, x).value};
    });
  }
}

// Ops in bf16 and f16 give the f32 results on the widened elements, rounded once. A parameter's gradient is f32.
TEST(Pointwise, HalvesAreTheF32OnesRounded) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const auto run = [&](const Function& f, DType as) {
      autograd::Tape tape;
      const Variable a = tape.input(test::as(as, test::random({5, 37}, dtype, 1))),
                     b = tape.input(test::as(as, test::random({5, 37}, dtype, 2)));
      const Variable y = f({a, b});
      tape.backward(y, test::as(as, test::random({5, 37}, dtype, 3)));
      const Tensor da = tape.take_gradient(a), db = tape.take_gradient(b);
      return std::vector<Tensor>{y.value, da, db.defined() ? db : da};
    };
    std::vector<Function> all = of_one();
    for (const Function& f : std::vector<Function>{[](const auto& in) { return ops::maximum(in[0], in[1]); },
                                                   [](const auto& in) { return ops::pow(ops::abs(in[0]), 0.3); }})
      all.push_back(f);
    for (size_t n = 0; n + 1 < all.size(); ++n) {
      const auto narrow = run(all[n], dtype), wide = run(all[n], DType::f32);
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(test::same_bits(narrow[i], test::as(dtype, wide[i]))) << n << " result " << i;
    }
  }
}

TEST(Pointwise, ComparesAsIeeeDoes) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor a = tensor_of<double>(std::vector<double>{1, 2, 3, nan, -0.0}, {5}),
               b = tensor_of<double>(std::vector<double>{2, 2, 2, 2, 0}, {5});
  const auto expect = [&](const Tensor& mask, const std::vector<u8>& want) {
    EXPECT_EQ(mask.dtype(), DType::uint8);
    EXPECT_EQ(std::vector<u8>(mask.span<u8>().begin(), mask.span<u8>().end()), want);
  };
  expect(ops::eq(a, b), {0, 1, 0, 0, 1});
  expect(ops::ne(a, b), {1, 0, 1, 1, 0});
  expect(ops::lt(a, b), {1, 0, 0, 0, 0});
  expect(ops::le(a, b), {1, 1, 0, 0, 1});
  expect(ops::gt(a, b), {0, 0, 1, 0, 0});
  expect(ops::ge(a, b), {0, 1, 1, 0, 1});
  expect(ops::gt(a, 1.5), {0, 1, 1, 0, 0});
  expect(ops::le(a, 1), {1, 0, 0, 0, 1});
}

// At points where a derivative jumps, gradients must be those of PyTorch.
TEST(Pointwise, AtEqualsBoundsAndNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto gradients = [](const std::vector<double>& a, const std::vector<double>& b, const Function& f) {
    autograd::Tape tape;
    const auto n = static_cast<i64>(a.size());
    const Variable x = tape.input(tensor_of<double>(a, {n})), y = tape.input(tensor_of<double>(b, {n}));
    const Variable z = f({x, y});
    tape.backward(z, tensor_of<double>(std::vector<double>(a.size(), 4), {n}));
    std::vector<double> all;
    for (const Tensor& t : {z.value, tape.take_gradient(x), tape.take_gradient(y)}) {
      for (i64 i = 0; t.defined() && i < n; ++i) all.push_back(test::at(t, i));
    }
    return all;
  };
  EXPECT_EQ(gradients({1, 3}, {1, 2}, of_two()[1]), (std::vector<double>{1, 3, 2, 4, 2, 0}));
  EXPECT_EQ(gradients({1, 3}, {1, 2}, of_two()[2]), (std::vector<double>{1, 2, 2, 0, 2, 4}));
  EXPECT_TRUE(std::isnan(gradients({nan}, {1}, of_two()[1])[0]) && std::isnan(gradients({1}, {nan}, of_two()[2])[0]));
  EXPECT_EQ(gradients({-0.7, 0.6, 0.5}, {0, 0, 0}, of_one()[5]), (std::vector<double>{-0.7, 0.6, 0.5, 0, 0, 4}));
  EXPECT_TRUE(std::isnan(gradients({nan}, {0}, of_one()[5])[0]));
  EXPECT_EQ(gradients({0, -2}, {0, 0}, of_one()[0]), (std::vector<double>{0, 2, 0, -4}));
  EXPECT_EQ(gradients({0, 0}, {0, 2}, [](const auto& in) { return ops::pow(in[0], in[1]); }), (std::vector<double>{1, 0, 0, 0, 0, 0}));
}

TEST(Pointwise, RefusesAndSaysWhatCame) {
  const Tensor x = random({2, 3}, 1), wide = random({4}, 1), narrow = test::random({2, 3}, DType::f32, 1);
  EXPECT_EQ(test::refusal([&] { ops::maximum(x, wide); }),
            "[maximum] expected inputs of the same dtype whose shapes broadcast, got f64 [2, 3] and f64 [4]");
  EXPECT_EQ(test::refusal([&] { ops::lt(x, narrow); }),
            "[lt] expected inputs of the same dtype whose shapes broadcast, got f64 [2, 3] and f32 [2, 3]");
  EXPECT_EQ(test::refusal([&] { ops::where(narrow, x, x); }),
            "[where] expected a mask of uint8 or bool that broadcasts with the tensors, got f32 [2, 3] and f64 [2, 3] and f64 [2, 3]");
  EXPECT_EQ(test::refusal([&] {
              ops::masked_fill(x, mask_of({1, 0}, {2, 1, 1}), 0);
            }),
            "[masked_fill] expected a mask that broadcasts to the shape of the tensor, got u8 [2, 1, 1] and f64 [2, 3]");
  EXPECT_EQ(test::refusal([&] { ops::softplus(x, 0); }), "[softplus] expected a beta above 0, not 0.000000, got f64 [2, 3]");
  EXPECT_EQ(test::refusal([&] { ops::clamp(x, 2, 1); }),
            "[clamp] expected bounds in ascending order, not 2.000000 and 1.000000, got f64 [2, 3]");
}

}  // namespace
}  // namespace spillway::pointwise_test
