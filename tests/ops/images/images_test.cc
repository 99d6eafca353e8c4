// Tests 1-D and transposed convolutions, pooling and group norms: gradients by central differences, views, bitwise equal results and
// refusals.
#include "ops/images/batch_norm.h"
#include "ops/images/conv.h"
#include "ops/images/pool.h"
#include "ops/layout/shape.h"
#include "ops/rows/norm.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace spillway::images_test {
namespace {

using ops::Variable;
using test::Function;

Tensor random(const Shape& shape, u64 seed) { return test::random(shape, DType::f64, seed); }

void check(const std::vector<Shape>& shapes, const Function& f) {
  SCOPED_TRACE(to_string(shapes[0]));
  std::vector<Tensor> inputs;
  for (const Shape& shape : shapes) inputs.push_back(random(shape, inputs.size() + 1));
  test::check_gradient(inputs, f);
  test::check_views(inputs, f);
}

// The tested convolutions have odd extents, kernels that reach into padding everywhere, strides larger than the kernel, and groups of one
// channel.
TEST(Conv1d, Gradients) {
  struct Form {
    Shape x, w;
    ops::Conv1dOptions options;
  };
  const Form forms[] = {{{2, 3, 7}, {4, 3, 3}, {2, 1, 1, 1}},
                        {{1, 4, 9}, {6, 2, 3}, {1, 2, 2, 2}},
                        {{3, 2, 1}, {3, 2, 3}, {1, 1, 1, 1}},
                        {{2, 3, 8}, {3, 1, 2}, {3, 0, 1, 3}},
                        {{2, 3, 5}, {2, 3, 1}, {}}};
  for (const Form& f : forms) check({f.x, f.w, {f.w[0]}}, [&](const auto& in) { return ops::conv1d(in[0], in[1], in[2], f.options); });
}

TEST(ConvTranspose, Gradients) {
  struct Form {
    Shape x, w;
    ops::ConvTransposeOptions options;
  };
  const Form forms[] = {{{2, 3, 3, 4}, {3, 4, 3, 2}, {}},
                        {{1, 4, 3, 2}, {4, 3, 3, 3}, {{{2, 3}, {1, 0}, 1, 2}, {1, 2}}},
                        {{2, 2, 3, 3}, {2, 2, 2, 3}, {{1, {1, 2}, {3, 2}, 1}, 0}},
                        // some outputs are reached by no input and equal the bias
                        {{2, 3, 2, 3}, {3, 1, 1, 1}, {{{3, 2}, 0, 1, 3}, {2, 1}}},
                        {{1, 2, 1, 1}, {2, 3, 3, 3}, {{1, 1, 1, 1}, 0}}};
  for (const Form& f : forms) {
    const Shape bias{f.w[1] * f.options.groups};
    check({f.x, f.w, bias}, [&](const auto& in) { return ops::conv_transpose2d(in[0], in[1], in[2], f.options); });
    check({f.x, f.w}, [&](const auto& in) { return ops::conv_transpose2d(in[0], in[1], {}, f.options); });
  }
  check({{2, 4, 5}, {4, 3, 3}, {6}}, [](const auto& in) { return ops::conv_transpose1d(in[0], in[1], in[2], {{2, 1, 1, 2}, 1}); });
}

// A transposed convolution is the adjoint of the convolution: <conv(x), y> = <x, conv_transpose(y)>.
TEST(ConvTranspose, IsTheAdjointOfAConvolution) {
  const ops::ConvOptions options{{2, 3}, {1, 0}, {1, 2}, 2};
  const Tensor x = random({2, 4, 8, 9}, 1), w = random({6, 2, 3, 3}, 2), y = ops::conv2d(x, w, {}, options).value,
               dy = random(y.shape(), 3);
  ASSERT_EQ(y.shape(), (Shape{2, 6, 4, 2}));
  const Tensor back = ops::conv_transpose2d(dy, w, {}, {options, {1, 1}}).value;
  ASSERT_EQ(back.shape(), x.shape());
  double there = 0, here = 0;
  for (i64 i = 0; i < y.elems(); ++i) there += test::at(y, i) * test::at(dy, i);
  for (i64 i = 0; i < x.elems(); ++i) here += test::at(x, i) * test::at(back, i);
  EXPECT_NEAR(there, here, 1e-12 * (std::abs(there) + 100));
}

TEST(Pools, Gradients) {
  check({{2, 2, 7, 5}}, [](const auto& in) { return ops::avg_pool2d(in[0], {3, 2}, {2, 1}, 1, false); });
  check({{1, 2, 4, 4}}, [](const auto& in) { return ops::avg_pool2d(in[0], 2, 2, 1, false); });
  check({{1, 3, 7, 5}}, [](const auto& in) { return ops::adaptive_max_pool2d(in[0], {3, 4}); });
  check({{1, 2, 2, 3}}, [](const auto& in) { return ops::adaptive_max_pool2d(in[0], {5, 7}); });
  check({{2, 3, 9}}, [](const auto& in) { return ops::max_pool1d(in[0], 3, 2, 1); });
  check({{2, 3, 9}}, [](const auto& in) { return ops::avg_pool1d(in[0], 4, 3, 2, false); });
}

TEST(GroupNorm, Gradients) {
  struct Form {
    Shape x;
    i64 groups;
  };
  for (const Form& f : {Form{{2, 6, 3, 5}, 3}, Form{{3, 4, 7}, 1}, Form{{2, 3, 3, 17}, 3}, Form{{5, 6}, 2}, Form{{1, 4, 2, 3, 2}, 2}})
    check({f.x, {f.x[1]}, {f.x[1]}}, [&](const auto& in) { return ops::group_norm(in[0], f.groups, in[1], in[2], 1e-3); });
  check({{2, 3, 4, 5}, {3}, {3}}, [](const auto& in) { return ops::instance_norm(in[0], in[1], in[2]); });
}

// The backward must not divide by the gain: a gain of zero leaves the gradients of the group's other channels right.
TEST(GroupNorm, OfAGainOfZero) {
  const Tensor gamma = random({4}, 2), beta = random({4}, 3);
  gamma.data<double>()[1] = 0;
  test::check_gradient({random({2, 4, 5}, 1), gamma, beta}, [](const auto& in) { return ops::group_norm(in[0], 2, in[1], in[2]); });
}

// A group norm with one group equals a layer norm, if each place of the layer norm's row is a separate channel.
TEST(GroupNorm, OfOneGroupIsALayerNorm) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = test::random({5, 33}, dtype, 1), gamma = test::random({33}, dtype, 2), beta = test::random({33}, dtype, 3);
    const double near = 30 * test::half_ulp(dtype);  // each of the two norms makes about ten rounding errors
    test::expect_near(ops::group_norm(x, 1, gamma, beta).value, ops::layer_norm(x, gamma, beta, 1e-5).value, near, near, "norm");
  }
}

TEST(Images, SameBitsOnAnyThreads) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    test::check_threads([=] {
      const Tensor x = test::random({5, 12, 13, 11}, dtype, 1), w = test::random({12, 10, 3, 3}, dtype, 2),
                   gain = test::random({12}, dtype, 3);
      autograd::Tape tape;
      const Variable in = tape.input(x);
      const Variable y =
          ops::adaptive_max_pool2d(ops::conv_transpose2d(ops::group_norm(in, 3, gain, gain), w, {}, {{2, 1, 1, 1}, 1}), {7, 9});
      tape.backward(y, y.value);
      return std::vector<Tensor>{y.value, tape.take_gradient(in)};
    });
  }
}

TEST(Images, RefuseAndSayWhatCame) {
  const Tensor x = random({1, 4, 5, 5}, 1), row = random({1, 4, 5}, 1), narrow = test::random({4, 2, 3}, DType::f32, 2);
  EXPECT_EQ(test::refusal([&] {
              ops::conv2d(x, random({2, 3, 3, 3}, 2), {});
            }),
            "[conv2d] expected x[N, C, H, W], w[O, C / 1, kh, kw] and bias[O] (or none) of the same dtype, got f64 [1, 4, 5, 5] and f64 "
            "[2, 3, 3, 3] and none");
  EXPECT_EQ(
      test::refusal([&] {
        ops::conv1d(row, narrow, {}, {1, 0, 1, 2});
      }),
      "[conv1d] expected x[N, C, L], w[O, C / 2, k] and bias[O] (or none) of the same dtype, got f64 [1, 4, 5] and f32 [4, 2, 3] and none");
  EXPECT_EQ(test::refusal([&] {
              ops::conv_transpose2d(x, random({3, 2, 3, 3}, 2), {});
            }),
            "[conv_transpose2d] expected x[N, C, H, W], w[C, O / 1, kh, kw] and bias[O] (or none) of the same dtype, got f64 [1, 4, 5, 5] "
            "and f64 [3, 2, 3, 3] and none");
  EXPECT_EQ(test::refusal([&] {
              ops::conv_transpose1d(row, random({4, 2, 3}, 2), {}, {{2, 0, 1, 1}, 2});
            }),
            "[conv_transpose1d] expected an output padding of at least 0 and below the stride, got f64 [1, 4, 5] and f64 [4, 2, 3]");
  EXPECT_EQ(test::refusal([&] {
              ops::conv_transpose1d(row, random({4, 2, 1}, 2), {}, {{1, 3, 1, 1}, 0});
            }),
            "[conv_transpose1d] expected a padding that leaves at least one element of the result, got f64 [1, 4, 5] and f64 [4, 2, 1]");
  EXPECT_EQ(test::refusal([&] { ops::max_pool2d(x, 2, 2, 2); }),
            "[max_pool2d] expected a padding of at most half the kernel, got f64 [1, 4, 5, 5]");
  EXPECT_EQ(test::refusal([&] { ops::avg_pool1d(x, 2, 2); }), "[avg_pool1d] expected rows x[N, C, L], got f64 [1, 4, 5, 5]");
  EXPECT_EQ(test::refusal([&] {
              ops::adaptive_max_pool2d(row, {0, 1});
            }),
            "[adaptive_max_pool2d] expected images x[N, C, H, W] and a size of at least 1x1, not 0x1, got f64 [1, 4, 5]");
  const std::string group =
      " expected x[N, C, ...], parameters [C] of the dtype of x, and a number of groups that divides C and leaves each group more than one "
      "element, not ";
  const Tensor four = random({4}, 2);
  EXPECT_EQ(test::refusal([&] { ops::group_norm(x, 3, four, four); }),
            "[group_norm]" + group + "3, got f64 [1, 4, 5, 5] and f64 [4] and f64 [4]");
  EXPECT_EQ(test::refusal([&] {
              ops::instance_norm(random({2, 4, 1}, 1), four, four);
            }),
            "[instance_norm]" + group + "4, got f64 [2, 4, 1] and f64 [4] and f64 [4]");
}

}  // namespace
}  // namespace spillway::images_test
