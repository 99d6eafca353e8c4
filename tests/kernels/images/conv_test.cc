// Compares convolution and its gradients with their definition in plain loops of doubles: odd extents, strides, paddings, dilations and
// groups, and sizes that need several strips of columns, chunks of the inner dimension, blocks of rows and parts of a sum.
#include <hwy/targets.h>

#include "kernels/images/conv_winograd.h"
#include "tests/kernels/images/support_conv.h"

namespace spillway::conv_test {
namespace {

using kernels::ConvShape;

Tensor bytes(i64 n) { return empty({n}, DType::uint8); }

// Returns a tensor of large numbers. A kernel must overwrite all of them, or the comparison fails.
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
  const Tensor x64 = test::as(DType::f64, x), w64 = test::as(DType::f64, w), dy64 = test::as(DType::f64, dy);
  const double *at_x = x64.data<double>(), *at_w = w64.data<double>(), *at_dy = dy64.data<double>();
  double *to_y = want_y.data<double>(), *to_dx = want_dx.data<double>(), *to_dw = want_dw.data<double>();
  for (i64 i = 0; i < y.elems(); ++i) to_y[i] = test::at(bias, i / (out[2] * out[3]) % s.outputs);
  test::for_products(s, [&](i64 i, i64 j, i64 k) {
    to_y[k] += at_x[i] * at_w[j];
    to_dx[i] += at_dy[k] * at_w[j];
    to_dw[j] += at_x[i] * at_dy[k];
  });
  // Each result has chains of at most kDepth roundings, of sums that grow as the root of their
  // number of terms, to about 40 in these shapes. bf16 and f16 results are rounded once more.
  const double absolute = dtype == DType::f64 ? 1e-11 : 2e-4, relative = is_half(dtype) ? test::half_ulp(dtype) : 0;
  test::expect_near(y, want_y, relative, absolute, "y");
  test::expect_near(dx, want_dx, relative, absolute, "dx");
  test::expect_near(dw, want_dw, 0, absolute, "dw");
}

// Lists convolutions that read tiles of the image in place, with images cut into several tiles.
const ConvShape kTiled[] = {
    {1, 3, 10, 1, {31, 29}, {7, 2, 3}},  // strided lines, which have two phases in each direction
    {1, 40, 3, 1, {40, 33}, {3, 1, 1}},  // a tile holds only some rows of an image
    {5, 20, 17, 1, {8, 8}, {3, 1, 1}},   // several images in a chunk of the weight gradient's sum, and parts of the channels
    {2, 3, 7, 1, {20, 19}, {5, 1, 4}},   // more padding than the window needs
    {2, 6, 70, 2, {13, 12}, {{3, 2}, {2, 1}, {1, 0}, {2, 1}}},
    {2, 5, 1, 1, {30, 70}, {3, {1, 2}, 1}},  // a single output channel
    {3, 12, 12, 12, {17, 16}, {3, 1, 1}},    // one channel per group
};

// Lists convolutions that f32 computes by Winograd's method, both forward and for the input gradient.
const ConvShape kWinograd[] = {
    {1, 70, 133, 1, {27, 29}, {3, 1, 1}},      // two chunks of channels, two blocks of rows, odd extents
    {7, 128, 112, 1, 8, {3, 1, 1}},            // a strip of tiles spans several images
    {1, 48, 56, 1, {5, 203}, {3, 1, {1, 2}}},  // lines are cut into blocks
    {1, 96, 96, 2, {16, 12}, {3, 1, {0, 1}}},  // groups; no padding of rows, so the input gradient has a padding of 2
    {1, 64, 64, 1, {11, 20}, {3, 1, {2, 0}}},  // rows and columns of the previous case are exchanged
};

bool takes_winograd(const ConvShape& s) {
  return kernels::takes_winograd(kernels::forward_columns(s), s.outputs_of_group()) &&
         kernels::takes_winograd(kernels::phase_columns(s, 0, 0), s.inputs_of_group());
}

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

// Compares Winograd's method with the plain product in f64, with a bias.
TEST(ConvWinograd, IsTheConvolution) {
  for (const ConvShape& s : kWinograd) {
    SCOPED_TRACE(test::to_string(s));
    EXPECT_TRUE(takes_winograd(s) && kernels::takes_winograd_gradient(s));
    const auto& [in, weight, out] = test::ConvShapes(s);
    std::array<Tensor, 2> y, dx, dw;
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor x = test::random(in, DType::f32, 1), w = test::random(weight, DType::f32, 2), dy = test::random(out, DType::f32, 3),
                   bias = test::random({s.outputs}, DType::f32, 4);
      const auto at = static_cast<size_t>(dtype == DType::f64);
      y[at] = spoilt(out, dtype), dx[at] = spoilt(in, dtype), dw[at] = spoilt(weight, dtype);
      const auto given = [dtype](const Tensor& t) { return test::as(dtype, t); };
      kernels::conv2d(s, given(x), given(w), given(bias), y[at], bytes(kernels::conv2d_workspace_bytes(s, dtype)));
      kernels::conv2d_input_gradient(s, given(dy), given(w), {}, dx[at], bytes(kernels::conv2d_input_gradient_workspace_bytes(s, dtype)));
      kernels::conv2d_weight_gradient(s, given(x), given(dy), dw[at], bytes(kernels::conv2d_weight_gradient_workspace_bytes(s, dtype)));
    }
    // At a point of Winograd's transform, up to 1152 products of variance 4 give sums of about 70. An output adds nine of
    // them, which gives about 200. Chains of 64 roundings of 2^-24 add up as the root of their number: 8 x 200 x 2^-24.
    test::expect_near(y[0], y[1], 0, 1e-4, "y");
    test::expect_near(dx[0], dx[1], 0, 1e-4, "dx");
    test::expect_near(dw[0], dw[1], 0, 1e-4, "dw");
  }
}

// An output depends bitwise only on its own column and row of the product: an image gives the same results alone and among others, and so
// does an output channel.
TEST(ConvBits, DependOnNeitherNeighboursNorPlace) {
  for (const auto& [channels, extent] : {std::pair(20, 9), std::pair(64, 28)}) {
    const ConvShape many{5, channels, 70, 1, {extent, 7}, {3, 1, 1}}, one{1, channels, 48, 1, {extent, 7}, {3, 1, 1}};
    EXPECT_EQ(takes_winograd(many), channels == 64);
    EXPECT_EQ(takes_winograd(one), channels == 64);
    const Tensor x = test::random({5, channels, extent, 7}, DType::f32, 1), w = test::random({70, channels, 3, 3}, DType::f32, 2);
    const Tensor all = empty({5, 70, extent, 7}, DType::f32), alone = empty({1, 48, extent, 7}, DType::f32);
    kernels::conv2d(many, x, w, {}, all, bytes(kernels::conv2d_workspace_bytes(many, DType::f32)));
    kernels::conv2d(one, x.slice(0, 3, 4), w.slice(0, 21, 69), {}, alone, bytes(kernels::conv2d_workspace_bytes(one, DType::f32)));
    const Tensor image = all.slice(0, 3, 4).reshape({70, extent, 7});
    EXPECT_TRUE(test::same_bits(alone, image.slice(0, 21, 69)));
    EXPECT_FALSE(test::same_bits(alone, image.slice(0, 20, 68))) << "planted: other channels";
  }
}

// All instruction sets with fused multiply-add must give bitwise the same convolution.
TEST(ConvBits, AreThoseOfEveryInstructionSet) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    std::vector<ConvShape> shapes(std::begin(kTiled), std::end(kTiled));
    shapes.insert(shapes.end(), std::begin(kWinograd), std::end(kWinograd));
    for (const ConvShape& s : shapes) {
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

// Plans ask for a GPU's workspace size without a GPU. The size does not grow with the number
// of images. The shapes are ResNet-50's first, widest and last convolutions in batches of 64.
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
