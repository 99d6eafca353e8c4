#include "kernels/images/conv_tile.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace spillway::kernels {
namespace {

// Returns how many zeros two successive lines can share: the trailing padding of the first line is the leading padding of the second.
i64 shared_zeros(const AxisTaps& taps, const TileAxis& axis) {
  if (axis.step != 1) return 0;
  const i64 leading = -axis.start[0], trailing = axis.start[0] + taps.positions + axis.span - taps.source;
  return std::clamp<i64>(std::min(leading, trailing), 0, axis.span);
}

// Copies places[p] = source[start + p * step] for p in [0, count). Where the index lies outside [0, extent), the value is zero.
template <class T, class P>
void copy_line(const T* source, i64 extent, i64 start, i64 step, P* places, i64 count) {
  const i64 first = std::min(count, start >= 0 ? 0 : ceil_div(-start, step));
  const i64 end = std::clamp<i64>(extent > start ? ceil_div(extent - start, step) : 0, first, count);
  for (i64 p = 0; p < first; ++p) places[p] = P(0);
  if (step == 1 && std::is_same_v<T, P>) {
    std::memcpy(places + first, source + start + first, static_cast<size_t>(end - first) * sizeof(T));
  } else {
    for (i64 p = first; p < end; ++p) places[p] = widen(source[start + p * step]);
  }
  for (i64 p = end; p < count; ++p) places[p] = P(0);
}

}  // namespace

TileAxis::TileAxis(const AxisTaps& taps) : step(taps.step) {
  const i64 count = taps.count, first = *std::min_element(taps.offset.begin(), taps.offset.begin() + count);
  for (i64 t = 0; t < count; ++t) {
    const auto at = static_cast<size_t>(t);
    const i64 distance = taps.offset[at] - first, begin = first + distance % step;
    i64 number = 0;
    while (number < phases && start[static_cast<size_t>(number)] != begin) ++number;
    if (number == phases) start[static_cast<size_t>(phases++)] = begin;
    phase[at] = number;
    shift[at] = distance / step;
    span = std::max(span, shift[at]);
  }
}

TileShape::TileShape(const Columns& columns, i64 channels, i64 rows)
    : columns_(columns), h_(columns.h), w_(columns.w), channels_(channels), rows_(rows), shared_(shared_zeros(columns.w, w_)) {
  pitch_ = columns.w.positions + w_.span - shared_;
  plane_ = (rows + h_.span) * pitch_;
  channel_ = h_.phases * w_.phases * plane_;
  slack_ = shared_ + 64;
}

void TileShape::offsets(i32* to) const {
  for (i64 c = 0; c < channels_; ++c) {
    for (size_t h = 0; h < static_cast<size_t>(columns_.h.count); ++h) {
      for (size_t w = 0; w < static_cast<size_t>(columns_.w.count); ++w) {
        const i64 plane = (c * h_.phases + h_.phase[h]) * w_.phases + w_.phase[w];
        *to++ = static_cast<i32>(plane * plane_ + h_.shift[h] * pitch_ + w_.shift[w]);
      }
    }
  }
}

template <class T, class P>
void TileShape::fill(const T* source, i64 channels, i64 row, i64 number, P* to) const {
  const AxisTaps &h = columns_.h, &w = columns_.w;
  const i64 lines = number + h_.span;
  for (i64 c = 0; c < channels; ++c, source += h.source * w.source) {
    for (i64 plane = 0; plane < h_.phases * w_.phases; ++plane, to += plane_) {
      const i64 top = row * h.step + h_.start[static_cast<size_t>(plane / w_.phases)];
      const i64 left = w_.start[static_cast<size_t>(plane % w_.phases)];
      // no padding is needed: the lines are copied as one piece
      if (left == 0 && w.step == 1 && pitch_ == w.source && h.step == 1 && top >= 0 && top + lines <= h.source) {
        copy_line(source + top * w.source, lines * pitch_, 0, 1, to, lines * pitch_);
        continue;
      }
      for (i64 line = 0; line < lines; ++line) {
        const i64 at = top + line * h.step;
        P* places = to + line * pitch_;
        at < 0 || at >= h.source ? std::fill(places, places + pitch_, P(0))
                                 : copy_line(source + at * w.source, w.source, left, w.step, places, pitch_);
      }
      if (number < rows_) std::fill_n(to + lines * pitch_, shared_, P(0));
    }
  }
  std::fill_n(to, slack_, P(0));
}

template void TileShape::fill(const float*, i64, i64, i64, float*) const;
template void TileShape::fill(const double*, i64, i64, i64, double*) const;
template void TileShape::fill(const Float16*, i64, i64, i64, float*) const;

}  // namespace spillway::kernels
