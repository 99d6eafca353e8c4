// Defines Window, which slides over the rows and columns of an image. Convolution
// and pooling share it. The types are value types with PyTorch's names.
#pragma once
#include <string>

#include "base/error.h"
#include "base/types.h"

namespace spillway::kernels {

/// A number for rows (h) and a number for columns (w). The constructor from a single number sets both.
struct Pair {
  i64 h, w;
  constexpr Pair(i64 both) : h(both), w(both) {}  // NOLINT: as PyTorch reads a single number
  constexpr Pair(i64 rows, i64 columns) : h(rows), w(columns) {}
  bool operator==(const Pair&) const = default;
};

struct Window {
  Pair kernel, stride = 1, padding = 0, dilation = 1;
  bool ceil = false;  // if true, the last window may reach beyond the image and its padding if it begins before the image's end
};

/// Returns how many positions the window has along one axis, or 0 if the window never fits.
constexpr i64 window_positions(i64 extent, i64 kernel, i64 stride, i64 padding, i64 dilation, bool ceil = false) {
  const i64 room = extent + 2 * padding - dilation * (kernel - 1) - 1, rounded = ceil ? room + stride - 1 : room;
  if (rounded < 0) return 0;
  const i64 last = rounded / stride;
  return ceil && last * stride >= extent + padding ? last : last + 1;
}

/// Returns the window's positions over an image of these extents. If the
/// window is invalid or never fits, throws an Error(bug) that names `op`.
inline Pair positions_of(const char* op, const Window& window, Pair extent) {
  const auto legal = [](Pair least, Pair value) { return value.h >= least.h && value.w >= least.w; };
  const bool sane = legal(1, window.kernel) && legal(1, window.stride) && legal(0, window.padding) && legal(1, window.dilation);
  const Pair at = sane
                      ? Pair(window_positions(extent.h, window.kernel.h, window.stride.h, window.padding.h, window.dilation.h, window.ceil),
                             window_positions(extent.w, window.kernel.w, window.stride.w, window.padding.w, window.dilation.w, window.ceil))
                      : Pair(0);
  if (legal(1, at)) return at;
  const auto text = [](Pair p) { return std::to_string(p.h) + "x" + std::to_string(p.w); };
  throw Error(ErrorCode::bug, std::string("[") + op + "] expected a window that fits the image, got a kernel of " + text(window.kernel) +
                                  ", stride " + text(window.stride) + ", padding " + text(window.padding) + ", dilation " +
                                  text(window.dilation) + " over " + text(extent) + "; pad more or make the kernel smaller");
}

}  // namespace spillway::kernels
