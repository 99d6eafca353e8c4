#include "kernels/images/conv_winograd_tiles.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/images/conv_winograd_tiles_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/images/conv_winograd.h"

namespace spillway::kernels {
#ifndef SPILLWAY_CONV_WINOGRAD_LINES
#define SPILLWAY_CONV_WINOGRAD_LINES
// The lines of pixels that rows of tiles cover. Each line is split into its even and its
// odd columns. Pixel (i, j) of tile t is from[i & 1][j & 1][i / 2 * pitch + j / 2 + t].
struct TileLines {
  const float* from[2][2];
  i64 pitch;
};
// A window of 2 * count rows and `columns` columns of an image, whose upper left corner is at row `top`
// and column `left`. The window reads as zero outside the image, and from `columns` to 2 * pitch.
struct LineWindow {
  Pair extent;
  i64 top, left, count, columns, pitch;
  i64 plane() const { return count * pitch + kTileSlack; }
};
#endif
}  // namespace spillway::kernels

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_ATTR void copy_line(const float* from, i64 n, float* to) {
  const hn::ScalableTag<float> d;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(float));
  i64 i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  if constexpr (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2) {
    if (i == n) return;
    const auto left = hn::FirstN(d, static_cast<size_t>(n - i));
    hn::BlendedStore(hn::MaskedLoad(left, d, from + i), left, d, to + i);
  } else {
    for (; i < n; ++i) to[i] = from[i];
  }
}

// Copies one channel's window to `lines`, padded with zeros: first its even rows, then its odd ones. Then splits
// each line into even and odd columns and writes the two halves to `to`. Whole vectors are read and written.
HWY_ATTR void cut_lines(const LineWindow& w, const float* channel, float* lines, float* to) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(float));
  const i64 half = 2 * w.count * w.pitch + 2 * kTileSlack, plane = w.plane();
  const i64 first = std::clamp<i64>(-w.left, 0, w.columns), end = std::clamp<i64>(w.extent.w - w.left, first, w.columns);
  if (first > 0 || end < 2 * w.pitch || w.top < 0 || w.top + 2 * w.count > w.extent.h) {
    for (i64 i = 0; i < 2 * half; i += lanes) hn::StoreU(hn::Zero(d), d, lines + i);
  }
  for (i64 i = std::max<i64>(0, -w.top); i < std::min(2 * w.count, w.extent.h - w.top); ++i) {
    copy_line(channel + (w.top + i) * w.extent.w + w.left + first, end - first, lines + (i & 1) * half + (i & ~i64(1)) * w.pitch + first);
  }
  for (i64 odd = 0; odd < 2; ++odd, lines += half, to += 2 * plane) {
    for (i64 i = 0; i < w.count * w.pitch; i += lanes) {
      V a, b;
      hn::LoadInterleaved2(d, lines + 2 * i, a, b);
      hn::StoreU(a, d, to + i);
      hn::StoreU(b, d, to + plane + i);
    }
  }
}

// Transforms pixels d of n tiles: computes to[point * point_stride + i] = (B^T d B)[point] for tile i.
HWY_ATTR void pixels_to_points(const TileLines& lines, i64 n, float* to, i64 point_stride) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(float));
  for (i64 i = 0; i < n; i += lanes) {
    V half[4][4];  // holds the first half of the transform, B^T d
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto pixel = [&](int row) HWY_ATTR { return hn::LoadU(d, lines.from[row & 1][j & 1] + row / 2 * lines.pitch + j / 2 + i); };
      const V p0 = pixel(0), p1 = pixel(1), p2 = pixel(2), p3 = pixel(3);
      half[0][j] = hn::Sub(p0, p2);
      half[1][j] = hn::Add(p1, p2);
      half[2][j] = hn::Sub(p2, p1);
      half[3][j] = hn::Sub(p1, p3);
    }
#pragma GCC unroll 4
    for (int row = 0; row < 4; ++row) {
      float* at = to + 4 * row * point_stride + i;
      const V* h = half[row];
      hn::StoreU(hn::Sub(h[0], h[2]), d, at);
      hn::StoreU(hn::Add(h[1], h[2]), d, at + point_stride);
      hn::StoreU(hn::Sub(h[2], h[1]), d, at + 2 * point_stride);
      hn::StoreU(hn::Sub(h[1], h[3]), d, at + 3 * point_stride);
    }
  }
}

// Transforms positions y of n tiles: computes to[point * point_stride + i] = (A y A^T)[point] for tile i.
HWY_ATTR void positions_to_points(const TileLines& lines, i64 n, float* to, i64 point_stride) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(float));
  // Multiplies a vector of two elements by A, which gives four elements.
  const auto four = [&](V a, V b, V* out) HWY_ATTR {
    out[0] = a;
    out[1] = hn::Add(a, b);
    out[2] = hn::Sub(a, b);
    out[3] = hn::Neg(b);
  };
  for (i64 i = 0; i < n; i += lanes) {
    V left[4], right[4];
    four(hn::LoadU(d, lines.from[0][0] + i), hn::LoadU(d, lines.from[1][0] + i), left);
    four(hn::LoadU(d, lines.from[0][1] + i), hn::LoadU(d, lines.from[1][1] + i), right);
#pragma GCC unroll 4
    for (int row = 0; row < 4; ++row) {
      V out[4];
      four(left[row], right[row], out);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) hn::StoreU(out[j], d, to + (4 * row + j) * point_stride + i);
    }
  }
}

HWY_ATTR void sums_to_positions(const float* sums, i64 point_stride, i64 n, float bias, float* upper, float* lower) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(float));
  const V added = hn::Set(d, bias);
  for (i64 i = 0; i < n; i += lanes) {
    V half[2][4];  // holds the first half of the transform, A^T s, where s are the sums
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto sum = [&](int row) HWY_ATTR { return hn::LoadU(d, sums + (4 * row + j) * point_stride + i); };
      const V s1 = sum(1), s2 = sum(2);
      half[0][j] = hn::Add(hn::Add(sum(0), s1), s2);
      half[1][j] = hn::Sub(hn::Sub(s1, s2), sum(3));
    }
#pragma GCC unroll 2
    for (int row = 0; row < 2; ++row) {
      const V* h = half[row];
      const V left = hn::Add(hn::Add(h[0], h[1]), h[2]), right = hn::Sub(hn::Sub(h[1], h[2]), h[3]);
      hn::StoreInterleaved2(hn::Add(left, added), hn::Add(right, added), d, (row == 0 ? upper : lower) + 2 * i);
    }
  }
}

HWY_ATTR void taps_to_points(const float* taps, i64 tap_stride, i64 n, float* to, i64 point_stride) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(float));
  const V one_half = hn::Set(d, 0.5F);
  // Multiplies a vector of three taps by G, which gives four elements.
  const auto four = [&](V a, V b, V c, V* out) HWY_ATTR {
    const V outer = hn::Add(a, c);
    out[0] = a;
    out[1] = hn::Mul(one_half, hn::Add(outer, b));
    out[2] = hn::Mul(one_half, hn::Sub(outer, b));
    out[3] = c;
  };
  for (i64 i = 0; i < n; i += lanes) {
    V half[3][4];  // holds the first half of the transform, G g, for each column
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
      const auto tap = [&](int row) HWY_ATTR { return hn::LoadU(d, taps + (3 * row + j) * tap_stride + i); };
      four(tap(0), tap(1), tap(2), half[j]);
    }
#pragma GCC unroll 4
    for (int row = 0; row < 4; ++row) {
      V out[4];
      four(half[0][row], half[1][row], half[2][row], out);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) hn::StoreU(out[j], d, to + (4 * row + j) * point_stride + i);
    }
  }
}

HWY_ATTR void sums_to_taps(const float* sums, i64 point_stride, i64 n, float* taps, i64 tap_stride) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(float));
  const V one_half = hn::Set(d, 0.5F);
  // Multiplies a vector of four elements by G^T, which gives three elements.
  const auto three = [&](V s0, V s1, V s2, V s3, V* out) HWY_ATTR {
    const V inner = hn::Mul(one_half, hn::Add(s1, s2));
    out[0] = hn::Add(s0, inner);
    out[1] = hn::Mul(one_half, hn::Sub(s1, s2));
    out[2] = hn::Add(inner, s3);
  };
  for (i64 i = 0; i < n; i += lanes) {
    V half[4][3];  // holds the first half of the transform, G^T s, for each column
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto sum = [&](int row) HWY_ATTR { return hn::LoadU(d, sums + (4 * row + j) * point_stride + i); };
      three(sum(0), sum(1), sum(2), sum(3), half[j]);
    }
#pragma GCC unroll 3
    for (int row = 0; row < 3; ++row) {
      V out[3];
      three(half[0][row], half[1][row], half[2][row], half[3][row], out);
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) hn::StoreU(out[j], d, taps + (3 * row + j) * tap_stride + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {

HWY_EXPORT(cut_lines);
HWY_EXPORT(pixels_to_points);
HWY_EXPORT(positions_to_points);
HWY_EXPORT(sums_to_positions);
HWY_EXPORT(taps_to_points);
HWY_EXPORT(sums_to_taps);

constexpr i64 kMostPitch = TileGrid::kMostWidth + 1;
// The elements of one channel's lines: four planes, for even and odd rows and columns. A strip touches several
// rows of tiles. Together with the row of tiles below them, these have at most 3 pitch + kWinogradTiles - 2 tiles.
constexpr i64 kChannelElems = 4 * (3 * kMostPitch + kWinogradTiles + kTileSlack);

// Transforms the tiles of all channels by calling `points` for each stretch of tiles. `more` is the number of tile
// rows below a tile, and of tile columns beside it, whose pixels the tile reads too. Whole vectors are written, so
// a stretch may write beyond its end. The next stretch or the next channel then overwrites what was written there.
template <class Transform>
void transform(const TileGrid& grid, const TileSource& source, i64 more, i64 begin, i64 n, float* to, i64 channel_stride,
               Transform points) {
  alignas(64) float uncut[kChannelElems + 4 * kTileSlack], cut[kChannelElems];
  const i64 area = source.extent.h * source.extent.w;
  for (i64 c = 0; c < source.count; ++c) {
    for_blocks(grid, begin, n, [&](const TileStretch& s) {
      const i64 row = s.begin / grid.pitch, rows = (s.begin + s.number - 1) / grid.pitch + 1 - row;
      const LineWindow window{source.extent, 2 * row + source.first.h, 2 * s.block * grid.width + source.first.w,
                              rows + more,   2 * (grid.width + more),  grid.pitch};
      HWY_DYNAMIC_DISPATCH(cut_lines)(window, source.data + s.image * source.image_stride + c * area, uncut, cut);
      const i64 plane = window.plane();
      TileLines lines{{{cut, cut + plane}, {cut + 2 * plane, cut + 3 * plane}}, grid.pitch};
      for (auto& pair : lines.from) {
        for (auto& from : pair) from += s.begin - row * grid.pitch;
      }
      points(lines, s.number, to + c * channel_stride + s.place);
    });
  }
}

}  // namespace

TileGrid::TileGrid(Pair of) : positions(of) {
  const i64 across = ceil_div(of.w, i64(2));
  rows = ceil_div(of.h, i64(2));
  blocks = ceil_div(across, kMostWidth);
  width = ceil_div(across, blocks);
  pitch = width + 1;
  tiles = (rows - 1) * pitch + width;
}

void transform_pixels(const TileGrid& grid, const TileSource& source, i64 begin, i64 n, float* to, i64 point_stride, i64 channel_stride) {
  transform(grid, source, 1, begin, n, to, channel_stride, [&](const TileLines& lines, i64 number, float* at) {
    HWY_DYNAMIC_DISPATCH(pixels_to_points)(lines, number, at, point_stride);
  });
}

void transform_positions(const TileGrid& grid, const TileSource& source, i64 begin, i64 n, float* to, i64 point_stride,
                         i64 channel_stride) {
  transform(grid, source, 0, begin, n, to, channel_stride, [&](const TileLines& lines, i64 number, float* at) {
    HWY_DYNAMIC_DISPATCH(positions_to_points)(lines, number, at, point_stride);
  });
}

void transform_sums(const float* sums, i64 point_stride, i64 n, float bias, float* upper, float* lower) {
  HWY_DYNAMIC_DISPATCH(sums_to_positions)(sums, point_stride, n, bias, upper, lower);
}

void transform_taps(const float* taps, i64 tap_stride, i64 n, float* to, i64 point_stride) {
  HWY_DYNAMIC_DISPATCH(taps_to_points)(taps, tap_stride, n, to, point_stride);
}

void transform_tap_sums(const float* sums, i64 point_stride, i64 n, float* taps, i64 tap_stride) {
  HWY_DYNAMIC_DISPATCH(sums_to_taps)(sums, point_stride, n, taps, tap_stride);
}

}  // namespace spillway::kernels
#endif  // HWY_ONCE
