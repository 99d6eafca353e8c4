// One axis of a pooling: which elements a window covers, and which windows cover an element. Values, of both devices.
#pragma once
#include <algorithm>

#include "kernels/window.h"

namespace spillway::kernels {

struct Range {
  i64 begin, end;
};

/// A window that slides by a stride.
struct Sliding {
  i64 extent, positions, kernel, stride, padding;
  constexpr Range covered(i64 at) const {
    const i64 first = at * stride - padding;
    return {std::max<i64>(0, first), std::min(extent, first + kernel)};
  }
  constexpr Range covering(i64 element) const {
    const i64 last = element + padding;
    return {last < kernel ? 0 : (last - kernel) / stride + 1, std::min(positions, last / stride + 1)};
  }
  constexpr i64 counted(i64) const { return kernel; }
};

/// Cut evenly.
struct Adaptive {
  i64 extent, positions;
  constexpr Range covered(i64 at) const { return {at * extent / positions, ceil_div((at + 1) * extent, positions)}; }
  constexpr Range covering(i64 element) const { return {element * positions / extent, ceil_div((element + 1) * positions, extent)}; }
  constexpr i64 counted(i64 at) const { return covered(at).end - covered(at).begin; }
};

inline Sliding sliding_rows(const Window& v, i64 extent, i64 positions) { return {extent, positions, v.kernel.h, v.stride.h, v.padding.h}; }
inline Sliding sliding_columns(const Window& v, i64 extent, i64 positions) {
  return {extent, positions, v.kernel.w, v.stride.w, v.padding.w};
}

}  // namespace spillway::kernels
