// Compares slices with steps, and index(), with plain loops, and their gradients with central differences.
#include <numeric>

#include "ops/layout/shape.h"
#include "tensor/create.h"
#include "tests/support/gradient_check.h"

namespace spillway::slices_test {
namespace {

using ops::Range;
using ops::Variable;
using test::Function;

const std::vector<Function>& all() {
  static const std::vector<Function> functions{[](const auto& in) { return ops::slice(in[0], 1, 0, 5, 2); },
                                               [](const auto& in) { return ops::slice(in[0], -1, 1, 6, 3); },
                                               [](const auto& in) { return ops::slice(in[0], 0, 2, 2, 2); },
                                               [](const auto& in) { return ops::index(in[0], {1}); },
                                               [](const auto& in) {
                                                 return ops::index(in[0], {-1, Range{}, Range{0, -1, 2}});
                                               },
                                               [](const auto& in) {
                                                 return ops::index(in[0], {Range{.step = 2}, 4});
                                               },
                                               [](const auto& in) {
                                                 return ops::index(in[0], {0, 1, 2});
                                               }};
  return functions;
}

TEST(Slices, Gradients) {
  for (const Function& f : all()) test::check_gradient({test::random({3, 5, 6}, DType::f64, 1)}, f);
}

TEST(Slices, OfViews) {
  for (const Function& f : all()) test::check_views({test::random({3, 5, 6}, DType::f64, 1)}, f);
}

TEST(Slices, HalvesMoveAsTheyAre) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = test::random({3, 5, 6}, dtype, 1);
    for (const Function& f : all()) EXPECT_EQ(values_of(f({x}).value), values_of(f({test::as(DType::f64, x)}).value));
  }
}

// Results must be those of Python's x[begin:end:step], for bounds inside and outside of the axis, of both signs.
TEST(Slices, IndexAsPythonDoes) {
  const Tensor x = arange(0, 7, 1, DType::f64);
  for (i64 begin = -9; begin <= 9; ++begin) {
    for (i64 end = -9; end <= 9; ++end) {
      for (i64 step = 1; step <= 4; ++step) {
        const auto bound = [](i64 at) { return std::clamp<i64>(at < 0 ? at + 7 : at, 0, 7); };
        std::vector<double> wanted;
        for (i64 i = bound(begin); i < bound(end); i += step) wanted.push_back(static_cast<double>(i));
        EXPECT_EQ(values_of(ops::index(x, {Range{begin, end, step}}).value), wanted) << begin << " " << end << " " << step;
      }
    }
  }
}

TEST(Slices, NumbersTakeTheirAxisAway) {
  const Tensor x = arange(0, 24, 1, DType::f64).reshape({2, 3, 4});
  EXPECT_EQ(ops::index(x, {1}).shape(), Shape({3, 4}));
  EXPECT_EQ(ops::index(x, {Range{}, -1}).shape(), Shape({2, 4}));
  EXPECT_EQ(ops::index(x, {1, 2, 3}).shape(), Shape());
  EXPECT_EQ(ops::index(x, {1, 2, 3}).value.item(), 23);
  EXPECT_EQ(ops::index(x, {}).shape(), x.shape());
}

TEST(Slices, RefusesAndSaysWhatCame) {
  const Tensor x = zeros({3, 5}, DType::f32);
  EXPECT_EQ(test::refusal([&] { ops::slice(x, 1, 0, 5, 0); }),
            "[slice] expected a range inside axis 1, not [0, 5) in steps of 0, got f32 [3, 5]");
  EXPECT_EQ(test::refusal([&] { ops::slice(x, 1, 0, 6); }), "[slice] expected a range inside axis 1, not [0, 6), got f32 [3, 5]");
  EXPECT_EQ(test::refusal([&] { ops::index(x, {3}); }), "[index] expected an index inside the range of axis 0, not 3, got f32 [3, 5]");
  EXPECT_EQ(test::refusal([&] { ops::index(x, {0, 0, 0}); }), "[index] expected at most one index for each axis, not 3, got f32 [3, 5]");
  EXPECT_EQ(test::refusal([&] { ops::index(x, {Range{0, 1, -1}}); }), "[index] expected steps above 0 of axis 0, not -1, got f32 [3, 5]");
}

}  // namespace
}  // namespace spillway::slices_test
