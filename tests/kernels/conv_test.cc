// Convolution and its gradients beside their definition in plain loops of doubles: odd extents, strides, paddings, dilations and groups,
// and sizes at which strips of columns, chunks of the inner extent, blocks of rows and parts of a sum are several.
#include "kernels/conv.h"

#include "tests/support/numbers.h"

namespace spillway {
namespace {

using kernels::ConvShape;

// body(index of x, of w, of y) for every product of the sum.
template <class Body>
void for_products(const ConvShape& s, Body body) {
  const kernels::Window& v = s.window;
  const kernels::Pair at = s.positions();
  const i64 inputs = s.inputs_of_group(), outputs = s.outputs_of_group();
  for (i64 n = 0; n < s.images; ++n) {
    for (i64 o = 0; o < s.outputs; ++o) {
      for (i64 i = 0; i < at.h * at.w; ++i) {
        for (i64 c = 0; c < inputs; ++c) {
          for (i64 t = 0; t < v.kernel.h * v.kernel.w; ++t) {
            const i64 row = i / at.w * v.stride.h + t / v.kernel.w * v.dilation.h - v.padding.h;
            const i64 column = i % at.w * v.stride.w + t % v.kernel.w * v.dilation.w - v.padding.w;
            if (row < 0 || row >= s.extent.h || column < 0 || column >= s.extent.w) continue;
            body(((n * s.inputs + o / outputs * inputs + c) * s.extent.h + row) * s.extent.w + column,
                 (o * inputs + c) * v.kernel.h * v.kernel.w + t, (n * s.outputs + o) * at.h * at.w + i);
          }
        }
      }
    }
  }
}

Tensor bytes(i64 n) { return empty({n}, DType::uint8); }

// Filled with what must not count.
Tensor spoilt(const Shape& shape, DType dtype) { return test::random(shape, dtype, 77, 1e6); }

void check(const ConvShape& s, DType dtype) {
  const kernels::Pair at = s.positions();
  const Shape in{s.images, s.inputs, s.extent.h, s.extent.w}, out{s.images, s.outputs, at.h, at.w};
  const Shape weight{s.outputs, s.inputs_of_group(), s.window.kernel.h, s.window.kernel.w};
  const Tensor x = test::random(in, dtype, 1), w = test::random(weight, dtype, 2), dy = test::random(out, dtype, 3),
               bias = test::random({s.outputs}, dtype, 4);
  const Tensor y = spoilt(out, dtype), dx = spoilt(in, dtype), dw = spoilt(weight, wide_dtype(dtype));
  kernels::conv2d(s, x, w, bias, y, bytes(kernels::conv2d_workspace_bytes(s, dtype)));
  kernels::conv2d_input_gradient(s, dy, w, dx, bytes(kernels::conv2d_input_gradient_workspace_bytes(s, dtype)));
  kernels::conv2d_weight_gradient(s, x, dy, dw, bytes(kernels::conv2d_weight_gradient_workspace_bytes(s, dtype)));
  const Tensor want_y = zeros(out, DType::f64), want_dx = zeros(in, DType::f64), want_dw = zeros(weight, DType::f64);
  for (i64 i = 0; i < y.elems(); ++i) want_y.data<double>()[i] = test::at(bias, i / (at.h * at.w) % s.outputs);
  for_products(s, [&](i64 i, i64 j, i64 k) {
    want_y.data<double>()[k] += test::at(x, i) * test::at(w, j);
    want_dx.data<double>()[i] += test::at(dy, k) * test::at(w, j);
    want_dw.data<double>()[j] += test::at(x, i) * test::at(dy, k);
  });
  // Chains of at most kDepth roundings of sums that grow as the root of their terms, about 40 here; bf16 rounds the results once more.
  const double absolute = dtype == DType::f64 ? 1e-11 : 2e-4, relative = dtype == DType::bf16 ? test::half_ulp(dtype) : 0;
  test::expect_near(y, want_y, relative, absolute, "y");
  test::expect_near(dx, want_dx, relative, absolute, "dx");
  test::expect_near(dw, want_dw, 0, absolute, "dw");
}

class Conv2d : public ::testing::TestWithParam<DType> {};

TEST_P(Conv2d, IsItsDefinition) {
  const ConvShape shapes[] = {
      {2, 3, 4, 1, {9, 11}, {3, 1, 1}},                         // everything inside one strip but the columns
      {1, 40, 60, 1, {6, 7}, {3, 1, 1}},                        // 360 inner: chunks of f32 and f64; two strips of rows
      {1, 130, 10, 1, {4, 4}, {3, 1, 1}},                       // 1170 inner: chunks of bf16
      {3, 8, 200, 1, {5, 5}, {1, 1, 0}},                        // a window of one element: rows of an image are one line
      {7, 6, 9, 3, {10, 9}, {{3, 2}, {2, 3}, {1, 0}, {2, 1}}},  // groups, unequal everything
      {2, 4, 4, 4, {7, 8}, {3, 2, 1}},                          // one channel a group
      {5, 50, 20, 1, 1, {3, 1, 1}},                             // all taps but one meet padding alone
      {9, 10, 12, 1, {2, 3}, {5, 2, 2}},                        // a kernel larger than the image
      {2, 3, 5, 1, {11, 13}, {2, {4, 3}, 0}},                   // a stride beyond the kernel: elements nobody reads
      {12, 3, 6, 1, {16, 15}, {5, 1, 0}},                       // 1584 positions: parts of the weight gradient's sum
      {1, 2, 3, 1, {3, 40}, {{1, 7}, {5, 1}, {4, 3}}},          // a stride beyond the image
  };
  for (const ConvShape& s : shapes) {
    SCOPED_TRACE("x[" + std::to_string(s.images) + ", " + std::to_string(s.inputs) + ", " + std::to_string(s.extent.h) + ", " +
                 std::to_string(s.extent.w) + "], " + std::to_string(s.outputs) + " outputs");
    check(s, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Conv2d, ::testing::Values(DType::f32, DType::f64, DType::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

// The bits of an output depend on its own column and row: an image gives the same alone and among others, an output channel too.
TEST(ConvBits, DependOnNeitherNeighboursNorPlace) {
  const ConvShape many{5, 20, 70, 1, {9, 7}, {3, 1, 1}}, one{1, 20, 10, 1, {9, 7}, {3, 1, 1}};
  const Tensor x = test::random({5, 20, 9, 7}, DType::f32, 1), w = test::random({70, 20, 3, 3}, DType::f32, 2);
  const Tensor all = empty({5, 70, 9, 7}, DType::f32), alone = empty({1, 10, 9, 7}, DType::f32);
  kernels::conv2d(many, x, w, {}, all, bytes(kernels::conv2d_workspace_bytes(many, DType::f32)));
  kernels::conv2d(one, x.slice(0, 3, 4), w.slice(0, 50, 60), {}, alone, bytes(kernels::conv2d_workspace_bytes(one, DType::f32)));
  EXPECT_TRUE(test::same_bits(alone, all.slice(0, 3, 4).reshape({70, 9, 7}).slice(0, 50, 60)));
  EXPECT_FALSE(test::same_bits(alone, all.slice(0, 3, 4).reshape({70, 9, 7}).slice(0, 49, 59))) << "planted: other channels";
}

}  // namespace
}  // namespace spillway
