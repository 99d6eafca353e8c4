// The matrices that convolution multiplies: how they are gathered piece by piece from images and weights, and where the results go. Used
// only by conv*.cc and conv*_cuda.*; allocates nothing; thread-safe. Legend: k = (channel, tap row, tap column) is the inner index, j =
// (image, grid row, grid column) the column; the last component varies fastest.
#pragma once
#include <algorithm>
#include <array>

#include "kernels/convolution/conv.h"
#include "tensor/dtype.h"

namespace spillway::kernels {

inline constexpr i64 kMaxKernel = 64;  // most rows, and most columns, of a kernel

/// One axis: grid position i reads source[i * step + offset[t]] for each of the `count` taps that touch the source at some position.
struct AxisTaps {
  i64 source = 1, positions = 1, step = 1, count = 1;
  std::array<i64, kMaxKernel> tap{}, offset{};  // tap[t]: number of tap t within the kernel
};

/// Returns the taps of a forward convolution. The grid consists of y's positions, the source is x.
AxisTaps forward_taps(i64 extent, i64 kernel, i64 stride, i64 padding, i64 dilation);
/// Returns the taps of an input gradient. The grid consists of x's positions phase, phase + stride, ...; the source is y. Phases split the
/// gradient of a strided convolution into convolutions of stride 1.
AxisTaps input_gradient_taps(i64 extent, i64 kernel, i64 stride, i64 padding, i64 dilation, i64 phase);

/// The matrix [K, J] of the elements source[image][channel][row][column], zero where a tap lies outside the image.
struct Columns {
  AxisTaps h, w;
  i64 channels, images, image_stride;
  constexpr i64 taps() const { return h.count * w.count; }
  constexpr i64 k() const { return channels * taps(); }
  constexpr i64 j() const { return images * h.positions * w.positions; }
};
/// Returns the columns of x under the window, for one group.
Columns forward_columns(const ConvShape& shape);
/// Returns y itself as columns, one per position, for one group: [O, J].
Columns position_columns(const ConvShape& shape);
/// Returns the columns of y under the taps that reach x's rows row, row + stride, ... and the corresponding columns, for one group.
Columns phase_columns(const ConvShape& shape, i64 row, i64 column);

/// Where results are stored: channel c at grid position i of image n has the address
/// n * image_stride + c * plane + first + i / columns * row_step + i % columns * column_step.
struct Place {
  i64 positions, columns, row_step, column_step, first, image_stride, plane;
};
/// Returns where the results of forward_columns are stored in y.
Place forward_place(const ConvShape& shape);
/// Returns where the results of phase_columns are stored in x.
Place phase_place(const ConvShape& shape, i64 row, i64 column, const Columns& columns);

/// Gathers the given ranges of the matrix into to[(k - k_begin) * row_stride + (j - j_begin)]. `source` points to channel 0 of the group in
/// image 0.
template <class T>
void gather(const Columns& columns, const T* source, i64 k_begin, i64 k_end, i64 j_begin, i64 j_end, T* to, i64 row_stride);

/// The matrix [rows, K] of weights by which the columns are multiplied. Element (row, channel, tap) lies at row * row_stride + channel *
/// channel_stride + tap.
template <class T>
struct Weights {
  const T* data;
  i64 row_stride, channel_stride;
  Pair kernel;
};
template <class T>
void gather(const Columns& columns, const Weights<T>& weights, i64 row_begin, i64 row_end, i64 k_begin, i64 k_end, T* to, i64 to_stride);

/// Calls f(line, first column, number, place) for each stretch of [begin, end) that lies within one line of `columns` positions.
template <class F>
void for_stretches(i64 columns, i64 begin, i64 end, F f) {
  for (i64 at = begin; at < end;) {
    const i64 line = at / columns, first = at % columns, number = std::min(columns - first, end - at);
    f(line, first, number, at - begin);
    at += number;
  }
}

}  // namespace spillway::kernels
