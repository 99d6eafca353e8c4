// Defines one axis (rows or columns) of a pooling: which elements a window covers,
// and which windows cover an element. The types are value types, used on CPU and GPU.
#pragma once
#include <algorithm>

#include "kernels/images/window.h"

namespace spillway::kernels {

struct Range {
  i64 begin, end;
};

/// One axis of a pooling with a sliding window. A `kernel` of 0 means that the extent is divided into windows as evenly as possible.
struct PoolAxis {
  i64 extent, positions, kernel = 0, stride = 1, padding = 0;
  bool counts_padding = true;  // whether padding counts as elements of a window when the mean is computed

  constexpr Range covered(i64 at) const {
    if (kernel == 0) return {at * extent / positions, ceil_div((at + 1) * extent, positions)};
    const i64 first = at * stride - padding;
    return {std::max<i64>(0, first), std::min(extent, first + kernel)};
  }
  constexpr Range covering(i64 element) const {
    if (kernel == 0) return {element * positions / extent, ceil_div((element + 1) * positions, extent)};
    const i64 last = element + padding;
    return {last < kernel ? 0 : (last - kernel) / stride + 1, std::min(positions, last / stride + 1)};
  }
  constexpr i64 counted(i64 at) const {
    if (kernel == 0 || !counts_padding) return covered(at).end - covered(at).begin;
    const i64 first = at * stride - padding;
    return std::min(first + kernel, extent + padding) - first;  // elements beyond the padding do not count
  }
};

struct PoolAxes {
  PoolAxis h, w;
  PoolAxes(const Window& v, Pair extent, Pair positions, bool counts_padding = true)
      : h{extent.h, positions.h, v.kernel.h, v.stride.h, v.padding.h, counts_padding}, w{extent.w,   positions.w, v.kernel.w,
                                                                                         v.stride.w, v.padding.w, counts_padding} {}
  /// Divides both extents as evenly as possible into the given numbers of positions.
  PoolAxes(Pair extent, Pair positions) : h{extent.h, positions.h}, w{extent.w, positions.w} {}
};

}  // namespace spillway::kernels
