// The matrices that a convolution multiplies: how pieces of them are gathered from images and weights, and where the results are
// stored. Legend: the taps are the elements of a kernel. The grid is the set of positions to which the kernel is moved. The inner
// index is k = (channel, tap row, tap column). A column of the matrix has the index j = (image, grid row, grid column). The last
// component of each index varies fastest. Only files named conv* include this header. Allocates nothing; thread-safe.
#pragma once
#include <algorithm>
#include <array>

#include "kernels/images/conv.h"
#include "tensor/dtype.h"

namespace spillway::kernels {

inline constexpr i64 kMaxKernel = 64;  // the most rows, and the most columns, of a kernel

/// One axis (rows or columns) of a convolution. At grid position i, tap t reads source[i * step +
/// offset[t]]. The list of `count` taps leaves out those that lie outside the source at every position.
struct AxisTaps {
  i64 source = 1, positions = 1, step = 1, count = 1;
  std::array<i64, kMaxKernel> tap{}, offset{};  // tap[t]: the index of tap t within the kernel; offset[t]: the offset at which tap t reads
};

/// Returns the taps of a forward convolution, whose grid is the positions of y and whose source is x.
AxisTaps forward_taps(i64 extent, i64 kernel, i64 stride, i64 padding, i64 dilation);
/// Returns the taps of an input gradient. Its grid is the positions phase, phase + stride, ... of x, and its source is y's gradient.
/// So the input gradient of a convolution with a stride is computed as several convolutions of stride 1, one for each phase.
AxisTaps input_gradient_taps(i64 extent, i64 kernel, i64 stride, i64 padding, i64 dilation, i64 phase);

/// The matrix [K, J] that is gathered from an image: its elements are source[image][channel][row][column], or zero where a tap lies outside
/// the image.
struct Columns {
  AxisTaps h, w;
  i64 channels, images, image_stride;
  constexpr i64 taps() const { return h.count * w.count; }
  constexpr i64 k() const { return channels * taps(); }
  constexpr i64 j() const { return images * h.positions * w.positions; }
};
/// Returns the matrix of a forward convolution, for one group: for each position, the elements of x under the window.
Columns forward_columns(const ConvShape& shape);
/// Returns y itself as a matrix [O, J] for one group, with one column per position.
Columns position_columns(const ConvShape& shape);
/// Returns the matrix of an input gradient, for one group and one phase. Its columns stand for x's rows row, row + stride, ...
/// and columns column, column + stride, ... A column holds the elements of y's gradient under the taps that reach its position.
Columns phase_columns(const ConvShape& shape, i64 row, i64 column);

/// Describes where the results of a product are stored. For channel c at grid position i of image n, the
/// index is n * image_stride + c * plane + first + i / columns * row_step + i % columns * column_step.
struct Place {
  i64 positions, columns, row_step, column_step, first, image_stride, plane;
};
/// Returns where the results of a product with forward_columns() are stored in y.
Place forward_place(const ConvShape& shape);
/// Returns where the results of a product with phase_columns() are stored in the gradient of x.
Place phase_place(const ConvShape& shape, i64 row, i64 column, const Columns& columns);

/// Gathers rows [k_begin, k_end) and columns [j_begin, j_end) of the matrix. Element (k, j) is written to
/// to[(k - k_begin) * row_stride + (j - j_begin)]. `source` points to channel 0 of the group in image 0.
template <class T>
void gather_columns(const Columns& columns, const T* source, i64 k_begin, i64 k_end, i64 j_begin, i64 j_end, T* to, i64 row_stride);

/// The matrix [rows, K] of weights by which the matrix of columns is multiplied. The weight for (row, channel, tap) is data[row *
/// row_stride + channel * channel_stride + tap].
template <class T>
struct Weights {
  const T* data;
  i64 row_stride, channel_stride;
  Pair kernel;
};
template <class T>
void gather_columns(const Columns& columns, const Weights<T>& weights, i64 row_begin, i64 row_end, i64 k_begin, i64 k_end, T* to,
                    i64 to_stride);

/// Cuts [begin, end) at multiples of `columns`, that is, into stretches within one line of a grid. Calls f(line, first, number, place) for
/// each: the stretch covers the columns [first, first + number) of its line, and begins `place` after `begin`.
template <class F>
void for_stretches(i64 columns, i64 begin, i64 end, F f) {
  for (i64 at = begin; at < end;) {
    const i64 line = at / columns, first = at % columns, number = std::min(columns - first, end - at);
    f(line, first, number, at - begin);
    at += number;
  }
}

}  // namespace spillway::kernels
