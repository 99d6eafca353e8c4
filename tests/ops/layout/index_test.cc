// Compares ops that move and pick elements with plain loops.
#include "ops/layout/index.h"

#include "base/error.h"
#include "ops/layout/shape.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace spillway::index_test {
namespace {

using ops::Variable;
using test::Function;

Tensor random(const Shape& shape, u64 seed) { return test::random(shape, DType::f64, seed); }

// Returns indices of which some repeat, while some places are never picked.
const Tensor& list() {
  static const Tensor places = test::ints({3, 0, 3, 1, 3, 0}, {6});
  return places;
}
const Tensor& of_each() {
  static const Tensor places = test::ints({4, 0, 4, 1, 2, 2, 2, 1, 0, 0, 0, 4}, {3, 4});
  return places;
}

const std::vector<Function>& all() {
  static const std::vector<Function> functions{
      [](const auto& in) { return ops::index_select(in[0], 1, list()); },
      [](const auto& in) { return ops::index_select(ops::transpose(in[0], 0, 1), 0, list()); },
      [](const auto& in) { return ops::gather(in[0], -1, of_each()); },
      [](const auto& in) { return ops::scatter_add(in[0], 1, of_each(), ops::slice(in[0], 1, 1, 5)); },
      [](const auto& in) { return ops::transpose(in[0], 0, -1); },
      [](const auto& in) {
        return ops::split(in[0], {2, 0, 3}, 1)[2];
      },
      [](const auto& in) {
        return ops::stack({in[0], in[0], ops::tril(in[0])}, 1);
      },
      [](const auto& in) {
        return ops::stack({in[0], in[0]}, -1);
      },
      [](const auto& in) {
        return ops::pad(in[0], {{1, 0}, {2, 3}}, 7);
      },
      [](const auto& in) {
        return ops::pad(in[0], {{0, 2}});
      },
      [](const auto& in) { return ops::tril(in[0], 1); },
      [](const auto& in) { return ops::triu(in[0], -1); },
      [](const auto& in) { return ops::triu(in[0], 9); }};
  return functions;
}

TEST(Places, Gradients) {
  for (const Function& f : all()) test::check_gradient({random({3, 5}, 1)}, f);
  test::check_gradient({random({2, 3, 5}, 1)}, [](const auto& in) { return ops::tril(in[0]); });
  test::check_gradient({random({2, 3, 4, 3}, 1)}, [](const auto& in) { return ops::index_select(in[0], 2, list()); });
  test::check_gradient({random({3, 5}, 1), random({3, 4}, 2)}, [](const auto& in) { return ops::scatter_add(in[0], 1, of_each(), in[1]); });
}

TEST(Places, OfViews) {
  for (const Function& f : all()) test::check_views({random({3, 5}, 1)}, f);
  const Tensor x = random({3, 5}, 1);
  EXPECT_TRUE(test::same_bits(ops::gather(x, 1, test::turned(of_each())).value, ops::gather(x, 1, of_each()).value));
}

TEST(Places, SameBitsOnAnyThreads) {
  std::vector<i32> places;
  for (i32 i = 0; i < 900; ++i) places.push_back(i * i % 70);
  const Tensor index = test::ints(places, {900});
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int axis : {0, 1, 2}) {
      test::check_threads([&] {
        autograd::Tape tape;
        const Variable x = tape.input(test::random({70, 70, 70}, dtype, 1)), y = ops::index_select(ops::tril(x), axis, index);
        tape.backward(y, y.value);
        return std::vector<Tensor>{y.value, tape.take_gradient(x)};
      });
    }
  }
}

// bf16 and f16 values that are added to one place are added in f32 and rounded once.
TEST(Places, HalvesAddWide) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const Function& f : all()) {
      const auto run = [&](DType as) {
        autograd::Tape tape;
        const Variable x = tape.input(test::as(as, test::random({3, 5}, dtype, 1))), y = f({x});
        tape.backward(y, test::as(as, test::random(y.shape(), dtype, 2)));
        return std::pair(y.value, tape.take_gradient(x));
      };
      const auto narrow = run(dtype), wide = run(DType::f64);
      test::expect_near(narrow.first, wide.first, test::half_ulp(dtype), 1e-6, "output");
      // Several ops use x, and the tape adds their gradients in the type of x, which rounds three times.
      test::expect_near(narrow.second, wide.second, 3 * test::half_ulp(dtype), 8 * test::half_ulp(dtype), "gradient");
    }
    const Tensor one = test::as(dtype, tensor_of<float>(std::vector<float>{1}, {1})), zero = test::as(dtype, zeros({1}, DType::f32));
    std::vector<Variable> tiny(5000, one);
    const Variable many = ops::scatter_add(zero, 0, zeros({5000}, DType::int32), ops::concat(tiny, 0));
    EXPECT_NEAR(test::at(many.value, 0), 5000, 5000 * test::half_ulp(dtype));
  }
}

TEST(Places, ElementByElement) {
  const Tensor x = random({3, 5}, 1), padded = ops::pad(x, {{1, 0}, {2, 3}}, 7).value, lower = ops::tril(x, -1).value,
               upper = ops::triu(x, 1).value, sums = ops::scatter_add(x, 1, of_each(), zeros({3, 4}, DType::f64)).value;
  ASSERT_EQ(padded.shape(), Shape({4, 10}));
  for (i64 i = 0; i < 4; ++i) {
    for (i64 j = 0; j < 10; ++j) {
      const bool in = i >= 1 && j >= 2 && j < 7;
      EXPECT_EQ(test::at(padded, i * 10 + j), in ? test::at(x, (i - 1) * 5 + j - 2) : 7);
    }
  }
  for (i64 i = 0; i < 3; ++i) {
    for (i64 j = 0; j < 5; ++j) {
      EXPECT_EQ(test::at(lower, i * 5 + j), j <= i - 1 ? test::at(x, i * 5 + j) : 0);
      EXPECT_EQ(test::at(upper, i * 5 + j), j >= i + 1 ? test::at(x, i * 5 + j) : 0);
    }
  }
  EXPECT_TRUE(test::same_bits(sums, x)) << "zeros add nothing";
}

TEST(Places, RefusesAndSaysWhatCame) {
  const Tensor x = random({3, 5}, 1);
  EXPECT_EQ(test::refusal([&] { ops::gather(x, 1, list()); }),
            "[gather] expected int32 indices with the shape of the tensor, except along axis 1, got f64 [3, 5] and i32 [6]");
  EXPECT_EQ(test::refusal([&] { ops::index_select(x, 0, x); }), "[index_select] expected int32 indices [K], got f64 [3, 5] and f64 [3, 5]");
  EXPECT_EQ(test::refusal([&] { ops::index_select(x, 0, list()); }), "[gather] expected indices in [0, 3) along the axis, got 3");
  EXPECT_EQ(test::refusal([&] {
              ops::split(x, {2, 2}, 1);
            }),
            "[split] expected extents that add up to the extent of axis 1, not 4, got f64 [3, 5]");
  EXPECT_EQ(test::refusal([&] {
              ops::stack({x, list()}, 0);
            }),
            "[stack] expected parts of the same shape and dtype, got f64 [3, 5] and i32 [6]");
  EXPECT_EQ(test::refusal([&] {
              ops::pad(x, {{0, -1}});
            }),
            "[pad] expected at most one padding for each axis, none of them below 0, got f64 [3, 5]");
  EXPECT_EQ(test::refusal([&] { ops::tril(list()); }), "[tril] expected matrices, got i32 [6]");
}

}  // namespace
}  // namespace spillway::index_test
