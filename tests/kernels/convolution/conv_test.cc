// Convolution and its gradients beside their definition in plain loops of doubles: odd extents, strides, paddings, dilations and groups,
// and sizes at which strips of columns, chunks of the inner extent, blocks of rows and parts of a sum are several.
#include <hwy/targets.h>

#include "tests/kernels/convolution/support_conv.h"

namespace spillway::conv_test {
namespace {

using kernels::ConvShape;

Tensor bytes(i64 n) { return empty({n}, DType::uint8); }

// Filled with what must not count.
Tensor spoilt(const Shape& shape, DType dtype) { return test::random(shape, dtype, 77, 1e6); }

void check(const ConvShape& s, DType dtype) {
  const auto& [in, weight, out] = test::ConvShapes(s);
  const Tensor x = test::random(in, dtype, 1), w = test::random(weight, dtype, 2), dy = test::random(out, dtype, 3),
               bias = test::random({s.outputs}, dtype, 4);
  const Tensor y = spoilt(out, dtype), dx = spoilt(in, dtype), dw = spoilt(weight, wide_dtype(dtype));
  kernels::conv2d(s, x, w, bias, y, bytes(kernels::conv2d_workspace_bytes(s, dtype)));
  kernels::conv2d_input_gradient(s, dy, w, {}, dx, bytes(kernels::conv2d_input_gradient_workspace_bytes(s, dtype)));
  kernels::conv2d_weight_gradient(s, x, dy, dw, bytes(kernels::conv2d_weight_gradient_workspace_bytes(s, dtype)));
  const Tensor want_y = zeros(out, DType::f64), want_dx = zeros(in, DType::f64), want_dw = zeros(weight, DType::f64);
  for (i64 i = 0; i < y.elems(); ++i) want_y.data<double>()[i] = test::at(bias, i / (out[2] * out[3]) % s.outputs);
  test::for_products(s, [&](i64 i, i64 j, i64 k) {
    want_y.data<double>()[k] += test::at(x, i) * test::at(w, j);
    want_dx.data<double>()[i] += test::at(dy, k) * test::at(w, j);
    want_dw.data<double>()[j] += test::at(x, i) * test::at(dy, k);
  });
  // Chains of at most kDepth roundings of sums that grow as the root of their terms, about 40 here; bf16 and f16 round the results once
  // more.
  const double absolute = dtype == DType::f64 ? 1e-11 : 2e-4, relative = is_half(dtype) ? test::half_ulp(dtype) : 0;
  test::expect_near(y, want_y, relative, absolute, "y");
  test::expect_near(dx, want_dx, relative, absolute, "dx");
  test::expect_near(dw, want_dw, 0, absolute, "dw");
}

// What is read from tiles of an image in place, and cut into several of them.
const ConvShape kTiled[] = {
    {1, 3, 10, 1, {31, 29}, {7, 2, 3}},  // lines of two phases each way
    {1, 40, 3, 1, {40, 33}, {3, 1, 1}},  // not all rows of an image in a tile
    {5, 20, 17, 1, {8, 8}, {3, 1, 1}},   // several images in a chunk of the weight gradient's sum, parts of the channels
    {2, 3, 7, 1, {20, 19}, {5, 1, 4}},   // more padding than the window needs
    {2, 6, 70, 2, {13, 12}, {{3, 2}, {2, 1}, {1, 0}, {2, 1}}},
    {2, 5, 1, 1, {30, 70}, {3, {1, 2}, 1}},  // one output
    {3, 12, 12, 12, {17, 16}, {3, 1, 1}},    // one channel a group
};

class Conv2d : public ::testing::TestWithParam<DType> {};

TEST_P(Conv2d, IsItsDefinition) {
  for (const ConvShape& s : test::odd_convolutions()) {
    SCOPED_TRACE(test::to_string(s));
    check(s, GetParam());
  }
}

TEST_P(Conv2d, IsItsDefinitionInTiles) {
  for (const ConvShape& s : kTiled) {
    SCOPED_TRACE(test::to_string(s));
    check(s, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Conv2d, ::testing::Values(DType::f32, DType::f64, DType::bf16, DType::f16),
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

// Of every one that rounds a multiply-add once.
TEST(ConvBits, AreThoseOfEveryInstructionSet) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const ConvShape& s : kTiled) {
      SCOPED_TRACE(test::to_string(s));
      const auto& [in, weight, out] = test::ConvShapes(s);
      const Tensor x = test::random(in, dtype, 1), w = test::random(weight, dtype, 2), dy = test::random(out, dtype, 3);
      std::vector<Tensor> first;
      for (i64 targets = hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3); targets != 0; targets &= targets - 1) {
        hwy::SetSupportedTargetsForTest(targets & -targets);
        const Tensor y = spoilt(out, dtype), dx = spoilt(in, dtype), dw = spoilt(weight, dtype);
        kernels::conv2d(s, x, w, {}, y, bytes(kernels::conv2d_workspace_bytes(s, dtype)));
        kernels::conv2d_input_gradient(s, dy, w, {}, dx, bytes(kernels::conv2d_input_gradient_workspace_bytes(s, dtype)));
        kernels::conv2d_weight_gradient(s, x, dy, dw, bytes(kernels::conv2d_weight_gradient_workspace_bytes(s, dtype)));
        if (first.empty()) first = {y, dx, dw};
        EXPECT_TRUE(test::same_bits(y, first[0]) && test::same_bits(dx, first[1]) && test::same_bits(dw, first[2]))
            << hwy::TargetName(targets & -targets);
      }
      hwy::SetSupportedTargetsForTest(0);
    }
  }
}

// ResNet-50's first, widest and last ones in batches of 64: a GPU's workspace is asked for without one, and does not grow with the images.
TEST(Conv, WorkspaceOfAGpu) {
  const auto bytes_on = [](Device device, const ConvShape& s, DType dtype) {
    const Stream stream{device, nullptr, Stream::current().memory};
    const StreamScope scope(stream);
    return std::max({kernels::conv2d_workspace_bytes(s, dtype), kernels::conv2d_input_gradient_workspace_bytes(s, dtype),
                     kernels::conv2d_weight_gradient_workspace_bytes(s, dtype)});
  };
  const ConvShape shapes[] = {
      {64, 3, 64, 1, 224, {7, 2, 3}}, {64, 64, 256, 1, 56, {1}}, {64, 512, 512, 1, 7, {3, 1, 1}}, {64, 2048, 512, 1, 7, {1}}};
  for (ConvShape s : shapes) {
    SCOPED_TRACE(test::to_string(s));
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      const i64 weights = s.outputs * (s.inputs * s.window.kernel.h * s.window.kernel.w + 8) * std::max<i64>(4, size_of(dtype));
      const i64 bytes = bytes_on(Device::meta(Device::Kind::cuda), s, dtype);
      EXPECT_LE(bytes, weights + 66 * kMiB) << "the strips' 32 MiB, and what a product takes";
      s.images *= 16;
      EXPECT_LE(bytes_on(Device::meta(Device::Kind::cuda), s, dtype), weights + 66 * kMiB);
      EXPECT_EQ(bytes_on(Device::meta(), s, dtype), bytes_on(Device::cpu(), s, dtype));
      s.images /= 16;
    }
  }
}

}  // namespace
}  // namespace spillway::conv_test
