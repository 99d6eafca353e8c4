// Provides convolutions to test, and their definition in plain loops, for conv_test.cc and conv_cuda_test.cc.
#pragma once
#include <string>
#include <vector>

#include "kernels/images/conv.h"
#include "tests/support/numbers.h"

namespace spillway::test {

/// Calls body(index in x, index in w, index in y) for every product that the convolution adds up.
template <class Body>
void for_products(const kernels::ConvShape& s, Body body) {
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

/// Computes the shapes of a convolution's tensors.
struct ConvShapes {
  Shape x, w, y;
  explicit ConvShapes(const kernels::ConvShape& s)
      : x{s.images, s.inputs, s.extent.h, s.extent.w},
        w{s.outputs, s.inputs_of_group(), s.window.kernel.h, s.window.kernel.w},
        y{s.images, s.outputs, s.positions().h, s.positions().w} {}
};

inline std::string to_string(const kernels::ConvShape& s) {
  const ConvShapes shapes(s);
  return "x" + spillway::to_string(shapes.x) + ", w" + spillway::to_string(shapes.w);
}

/// Returns convolutions with odd extents, strides, paddings, dilations and groups, and with sizes that the CPU cuts into several parts.
inline std::vector<kernels::ConvShape> odd_convolutions() {
  return {
      {2, 3, 4, 1, {9, 11}, {3, 1, 1}},                         // a convolution of which everything but the columns fits into one strip
      {1, 40, 60, 1, {6, 7}, {3, 1, 1}},                        // inner dimension 360: chunks of f32 and f64; two strips of rows
      {1, 130, 10, 1, {4, 4}, {3, 1, 1}},                       // an inner dimension of 1170, which takes several chunks in bf16
      {3, 8, 200, 1, {5, 5}, {1, 1, 0}},                        // a 1 x 1 window: rows of an image form one line
      {7, 6, 9, 3, {10, 9}, {{3, 2}, {2, 3}, {1, 0}, {2, 1}}},  // several groups, and extents that are all unequal
      {2, 4, 4, 4, {7, 8}, {3, 2, 1}},                          // as many groups as channels
      {5, 50, 20, 1, 1, {3, 1, 1}},                             // all taps except one meet only padding
      {9, 10, 12, 1, {2, 3}, {5, 2, 2}},                        // a kernel larger than the image
      {2, 3, 5, 1, {11, 13}, {2, {4, 3}, 0}},                   // a stride larger than the kernel: some elements are never read
      {12, 3, 6, 1, {16, 15}, {5, 1, 0}},                       // 1584 positions: the weight gradient's sum has parts
      {1, 2, 3, 1, {3, 40}, {{1, 7}, {5, 1}, {4, 3}}},          // a stride larger than the image
  };
}

}  // namespace spillway::test
