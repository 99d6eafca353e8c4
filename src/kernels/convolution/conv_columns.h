// The matrices that convolution multiplies, gathered piece by piece from images and weights, and where the results go. For conv*.cc and
// conv*_cuda.* alone; no allocation, thread-safe. Legend: k = (channel, tap row, tap column), j = (image, grid row, grid column), both with
// the last fastest.
#pragma once
#include <algorithm>
#include <array>

#include "kernels/convolution/conv.h"
#include "tensor/dtype.h"

namespace spillway::kernels {

inline constexpr i64 kMaxKernel = 64;  // of each axis

/// One axis: grid position i reads source[i * step + offset[t]] for each of the `count` taps that meet the source anywhere.
struct AxisTaps {
  i64 source = 1, positions = 1, step = 1, count = 1;
  std::array<i64, kMaxKernel> tap{}, offset{};  // tap: its number in the kernel
};

/// Grid: y's positions, source: x.
AxisTaps forward_taps(i64 extent, i64 kernel, i64 stride, i64 padding, i64 dilation);
/// Grid: x's positions phase, phase + stride, ...; source: y. Phases cut the gradient of a strided convolution into ones of stride 1.
AxisTaps input_gradient_taps(i64 extent, i64 kernel, i64 stride, i64 padding, i64 dilation, i64 phase);

/// The matrix [K, J] of source[image][channel][row][column], zero where a tap lies outside.
struct Columns {
  AxisTaps h, w;
  i64 channels, images, image_stride;
  constexpr i64 taps() const { return h.count * w.count; }
  constexpr i64 k() const { return channels * taps(); }
  constexpr i64 j() const { return images * h.positions * w.positions; }
};
/// Columns of x under the window, for one group.
Columns forward_columns(const ConvShape& shape);
/// Every position of y itself, for one group: [O, J].
Columns position_columns(const ConvShape& shape);
/// Columns of y under the taps that reach x's rows row, row + stride, ... and columns likewise, for one group.
Columns phase_columns(const ConvShape& shape, i64 row, i64 column);

/// Where the results lie: of channel c, grid position i of image n at
/// n * image_stride + c * plane + first + i / columns * row_step + i % columns * column_step.
struct Place {
  i64 positions, columns, row_step, column_step, first, image_stride, plane;
};
/// In y, of forward_columns.
Place forward_place(const ConvShape& shape);
/// In x, of phase_columns.
Place phase_place(const ConvShape& shape, i64 row, i64 column, const Columns& columns);

/// to[(k - k_begin) * row_stride + (j - j_begin)] for the given ranges. `source`: image 0, the group's channel 0.
template <class T>
void gather(const Columns& columns, const T* source, i64 k_begin, i64 k_end, i64 j_begin, i64 j_end, T* to, i64 row_stride);

/// The matrix [rows, K] of weights that meets the columns: element (row, channel, tap) lies at row * row_stride + channel * channel_stride.
template <class T>
struct Weights {
  const T* data;
  i64 row_stride, channel_stride;
  Pair kernel;
};
template <class T>
void gather(const Columns& columns, const Weights<T>& weights, i64 row_begin, i64 row_end, i64 k_begin, i64 k_end, T* to, i64 to_stride);

/// f(line, first column, number, place) for the stretches of [begin, end) that lie in one line of `columns` positions.
template <class F>
void for_stretches(i64 columns, i64 begin, i64 end, F f) {
  for (i64 at = begin; at < end;) {
    const i64 line = at / columns, first = at % columns, number = std::min(columns - first, end - at);
    f(line, first, number, at - begin);
    at += number;
  }
}

}  // namespace spillway::kernels
