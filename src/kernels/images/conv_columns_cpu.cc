#include "kernels/images/conv_columns.h"

#include <array>
#include <cstring>

#include "base/error.h"

namespace spillway::kernels {
namespace {

// Returns whether a tap with this offset lies inside [0, source) at one of the grid positions 0 to `positions` - 1.
bool meets(i64 positions, i64 step, i64 offset, i64 source) {
  const i64 first = offset >= 0 ? 0 : ceil_div(-offset, step);
  return first < positions && first * step + offset < source;
}

void add_tap(AxisTaps& axis, i64 tap, i64 offset) {
  if (!meets(axis.positions, axis.step, offset, axis.source)) return;
  axis.tap[static_cast<size_t>(axis.count)] = tap;
  axis.offset[static_cast<size_t>(axis.count++)] = offset;
}

void check(i64 kernel) { require(kernel <= kMaxKernel, "[conv2d] expected a kernel of at most 64 rows and 64 columns"); }

bool is_every_position(const AxisTaps& axis) {
  return axis.count == 1 && axis.offset[0] == 0 && axis.step == 1 && axis.positions == axis.source;
}

// Returns `columns` with each image treated as one long row, which its rows form in memory. This is possible
// if the kernel is a single element that visits every position; otherwise `columns` is returned unchanged.
Columns joined(Columns columns) {
  if (!is_every_position(columns.h) || !is_every_position(columns.w)) return columns;
  columns.w.source = columns.w.positions = columns.h.source * columns.w.source;
  columns.h.source = columns.h.positions = 1;
  return columns;
}

// Copies n elements, 16 bytes at a time. The last two copies may overlap, so that no
// shorter copies are needed. The function is called for many short runs of equal length.
template <class T>
void copy_run(const T* from, T* to, i64 n) {
  constexpr i64 lanes = 16 / static_cast<i64>(sizeof(T));
  if (n < lanes) {
    for (i64 i = 0; i < n; ++i) to[i] = from[i];
    return;
  }
  for (i64 i = 0; i + lanes <= n; i += lanes) std::memcpy(to + i, from + i, 16);
  std::memcpy(to + n - lanes, from + n - lanes, 16);
}

// The part of the grid columns [first, first + number) in which one tap column reads inside the source.
struct Inside {
  i64 begin, count;
  Inside(const AxisTaps& axis, i64 offset, i64 first, i64 number) {
    i64 lo = -offset, hi = axis.source - offset;
    if (axis.step != 1) {
      lo = lo <= 0 ? 0 : ceil_div(lo, axis.step);
      hi = hi <= 0 ? 0 : ceil_div(hi, axis.step);
    }
    begin = std::max(lo, first);
    count = std::min(hi, first + number) - begin;
  }
};

// Copies a run of `count` elements from each of several channels into
// the matrix, where the rows of successive channels are `to_step` apart.
template <class T>
void copy_channels(const T* from, i64 plane, i64 channels, i64 count, i64 step, T* to, i64 to_step) {
  if (step == 1) {
    for (i64 c = 0; c < channels; ++c) copy_run(from + c * plane, to + c * to_step, count);
    return;
  }
  for (i64 c = 0; c < channels; ++c) {
    for (i64 i = 0; i < count; ++i) to[c * to_step + i] = from[c * plane + i * step];
  }
}

bool stays_inside(const AxisTaps& axis) {
  for (i64 t = 0; t < axis.count; ++t) {
    const i64 offset = axis.offset[static_cast<size_t>(t)];
    if (offset < 0 || (axis.positions - 1) * axis.step + offset >= axis.source) return false;
  }
  return true;
}

}  // namespace

AxisTaps forward_taps(i64 extent, i64 kernel, i64 stride, i64 padding, i64 dilation) {
  check(kernel);
  AxisTaps axis{extent, window_positions(extent, kernel, stride, padding, dilation), stride, 0, {}, {}};
  for (i64 tap = 0; tap < kernel; ++tap) add_tap(axis, tap, tap * dilation - padding);
  return axis;
}

AxisTaps input_gradient_taps(i64 extent, i64 kernel, i64 stride, i64 padding, i64 dilation, i64 phase) {
  check(kernel);
  AxisTaps axis{window_positions(extent, kernel, stride, padding, dilation), ceil_div(extent - phase, stride), 1, 0, {}, {}};
  for (i64 tap = 0; tap < kernel; ++tap) {
    const i64 distance = phase + padding - tap * dilation;
    if (distance % stride == 0) add_tap(axis, tap, distance / stride);
  }
  return axis;
}

Columns forward_columns(const ConvShape& s) {
  const Window& v = s.window;
  return joined({forward_taps(s.extent.h, v.kernel.h, v.stride.h, v.padding.h, v.dilation.h),
                 forward_taps(s.extent.w, v.kernel.w, v.stride.w, v.padding.w, v.dilation.w), s.inputs_of_group(), s.images,
                 s.inputs * s.extent.h * s.extent.w});
}

Columns position_columns(const ConvShape& s) {
  const Pair at = s.positions();
  return joined({forward_taps(at.h, 1, 1, 0, 1), forward_taps(at.w, 1, 1, 0, 1), s.outputs_of_group(), s.images, s.outputs * at.h * at.w});
}

Columns phase_columns(const ConvShape& s, i64 row, i64 column) {
  const Window& v = s.window;
  const Pair at = s.positions();
  return {input_gradient_taps(s.extent.h, v.kernel.h, v.stride.h, v.padding.h, v.dilation.h, row),
          input_gradient_taps(s.extent.w, v.kernel.w, v.stride.w, v.padding.w, v.dilation.w, column), s.outputs_of_group(), s.images,
          s.outputs * at.h * at.w};
}

Place forward_place(const ConvShape& s) {
  const Pair at = s.positions();
  const i64 plane = at.h * at.w;
  return {plane, plane, 0, 1, 0, s.outputs * plane, plane};
}

Place phase_place(const ConvShape& s, i64 row, i64 column, const Columns& columns) {
  const i64 positions = columns.h.positions * columns.w.positions, plane = s.extent.h * s.extent.w, width = s.extent.w;
  const Pair stride = s.window.stride;
  if (stride == Pair(1)) return {plane, plane, 0, 1, 0, s.inputs * plane, plane};
  return {positions, columns.w.positions, stride.h * width, stride.w, row * width + column, s.inputs * plane, plane};
}

template <class T>
void gather_columns(const Columns& c, const T* source, i64 k_begin, i64 k_end, i64 j_begin, i64 j_end, T* to, i64 row_stride) {
  const i64 taps = c.taps(), plane = c.h.source * c.w.source;
  const i64 first_channel = k_begin / taps, first_tap = k_begin % taps, last_channel = k_end / taps, last_tap = k_end % taps;
  if (!stays_inside(c.h) || !stays_inside(c.w)) {
    for (i64 k = 0; k < k_end - k_begin; ++k) std::fill(to + k * row_stride, to + k * row_stride + j_end - j_begin, T{});
  }
  for_stretches(c.w.positions, j_begin, j_end, [&](i64 line, i64 begin, i64 number, i64 place) {
    const T* image = source + line / c.h.positions * c.image_stride;
    const i64 grid_row = line % c.h.positions * c.h.step;
    for (i64 h = 0; h < c.h.count; ++h) {
      const i64 row = grid_row + c.h.offset[static_cast<size_t>(h)];
      if (row < 0 || row >= c.h.source) continue;
      for (i64 w = 0; w < c.w.count; ++w) {
        // The range covers every tap of every channel, except that the first and the last channel may lack some taps.
        const i64 tap = h * c.w.count + w, offset = c.w.offset[static_cast<size_t>(w)];
        const i64 first = first_channel + (tap < first_tap), channels = last_channel + (tap < last_tap) - first;
        const Inside inside(c.w, offset, begin, number);
        if (inside.count <= 0 || channels <= 0) continue;
        copy_channels(image + first * plane + row * c.w.source + inside.begin * c.w.step + offset, plane, channels, inside.count, c.w.step,
                      to + (first * taps + tap - k_begin) * row_stride + place + inside.begin - begin, taps * row_stride);
      }
    }
  });
}

template <class T>
void gather_columns(const Columns& c, const Weights<T>& weights, i64 row_begin, i64 row_end, i64 k_begin, i64 k_end, T* to, i64 to_stride) {
  const i64 taps = c.taps(), rows = row_end - row_begin;
  const bool whole = c.h.count == weights.kernel.h && c.w.count == weights.kernel.w;
  const T* first = weights.data + row_begin * weights.row_stride;
  if (whole && weights.channel_stride == taps) {
    for (i64 row = 0; row < rows; ++row) copy_run(first + row * weights.row_stride + k_begin, to + row * to_stride, k_end - k_begin);
    return;
  }
  std::array<i64, kMaxKernel * kMaxKernel> places;  // the index of each tap within a kernel
  for (i64 tap = 0; tap < taps; ++tap) {
    const auto h = static_cast<size_t>(tap / c.w.count), w = static_cast<size_t>(tap % c.w.count);
    places[static_cast<size_t>(tap)] = c.h.tap[h] * weights.kernel.w + c.w.tap[w];
  }
  // If channels are far apart, prefetches the next channel's weights. The processor prefetches adjacent weights by itself.
  const i64 ahead = weights.channel_stride < weights.row_stride ? 0 : weights.channel_stride;
  const auto copy = [&](i64 row, i64 channel, i64 tap, i64 number, i64 place) {
    const T* kernel = first + row * weights.row_stride + channel * weights.channel_stride;
    __builtin_prefetch(kernel + ahead);
    T* at = to + row * to_stride + place;
    if (whole) return copy_run(kernel + tap, at, number);
    for (i64 i = 0; i < number; ++i) at[i] = kernel[places[static_cast<size_t>(tap + i)]];
  };
  // Calls f(channel, first tap, number of taps, place in the range) for the channels of the range.
  const auto for_channels = [&](auto f) {
    i64 channel = k_begin / taps, place = 0;
    for (i64 tap = k_begin % taps, left = k_end - k_begin; left > 0; tap = 0, ++channel) {
      const i64 number = std::min(taps - tap, left);
      f(channel, tap, number, place);
      place += number;
      left -= number;
    }
  };
  // Copies the weights in their memory order: row by row, or channel by channel.
  if (weights.channel_stride < weights.row_stride) {
    for (i64 row = 0; row < rows; ++row) {
      for_channels([&](i64 channel, i64 tap, i64 number, i64 place) { copy(row, channel, tap, number, place); });
    }
  } else {
    for_channels([&](i64 channel, i64 tap, i64 number, i64 place) {
      for (i64 row = 0; row < rows; ++row) copy(row, channel, tap, number, place);
    });
  }
}

template void gather_columns(const Columns&, const float*, i64, i64, i64, i64, float*, i64);
template void gather_columns(const Columns&, const double*, i64, i64, i64, i64, double*, i64);
template void gather_columns(const Columns&, const BFloat16*, i64, i64, i64, i64, BFloat16*, i64);
template void gather_columns(const Columns&, const Float16*, i64, i64, i64, i64, Float16*, i64);
template void gather_columns(const Columns&, const Weights<float>&, i64, i64, i64, i64, float*, i64);
template void gather_columns(const Columns&, const Weights<double>&, i64, i64, i64, i64, double*, i64);
template void gather_columns(const Columns&, const Weights<BFloat16>&, i64, i64, i64, i64, BFloat16*, i64);
template void gather_columns(const Columns&, const Weights<Float16>&, i64, i64, i64, i64, Float16*, i64);

}  // namespace spillway::kernels
