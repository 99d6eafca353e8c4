#include <algorithm>
#include <array>

#include "device/stream.h"
#include "kernels/images/conv_winograd.h"
#include "kernels/images/conv_winograd_tiles.h"
#include "kernels/products/gemm_in_place.h"

namespace spillway::kernels {
namespace {

constexpr i64 kTasks = 8;     // the least number of tasks: if dw is too small for as many, its sums over tiles are cut into parts
constexpr i64 kOutputs = 16;  // the number of outputs whose weights one task computes: whole cache lines of sums

TileGrid grid_of(const ConvShape& s) { return TileGrid(s.positions()); }

// Returns how many outputs are multiplied at a time. The strips of outputs have equal sizes of whole vectors.
i64 strip_of(i64 outputs) { return round_up(ceil_div(outputs, ceil_div(outputs, gemm::kStrip)), 16); }

}  // namespace

WinogradGradient::WinogradGradient(const ConvShape& s)
    : shape_(s), columns_(forward_columns(s)), outputs_(s.outputs_of_group()), row_(round_up(outputs_, 16)) {
  const TileGrid grid = grid_of(s);
  tiles_ = s.images * grid.blocks * grid.tiles;
  blocks_ = ceil_div(columns_.channels, kWinogradChannels);
  parts_ = std::clamp<i64>(ceil_div(kTasks, s.groups * blocks_), 1, ceil_div(tiles_, kWinogradTiles));
}

// Adds the products of tiles [begin, end), counted over all images, to to[point][channel][output].
void WinogradGradient::add(const float* x, const float* dy, i64 group, i64 channel, i64 channels, i64 begin, i64 end, float* to) const {
  constexpr i64 pixel_stride = kWinogradChannels * kWinogradTiles + kTileSlack,
                position_stride = gemm::kStrip * kWinogradTiles + kTileSlack;
  alignas(64) float pixels[kTilePoints * pixel_stride], positions[kTilePoints * position_stride];
  alignas(64) float packed[gemm::kStrip * kWinogradTiles];
  std::array<i32, kWinogradChannels> rows;
  const i32 line = 0;
  for (size_t c = 0; c < rows.size(); ++c) rows[c] = static_cast<i32>(c) * static_cast<i32>(kWinogradTiles);
  const TileGrid grid = grid_of(shape_);
  const i64 plane = shape_.extent.h * shape_.extent.w, out_plane = grid.positions.h * grid.positions.w;
  const TileSource from{x + (group * columns_.channels + channel) * plane, channels, shape_.inputs * plane, shape_.extent,
                        Pair(-shape_.window.padding.h, -shape_.window.padding.w)};
  const i64 strip = strip_of(outputs_);
  for (i64 at = begin; at < end; at += kWinogradTiles) {
    const i64 n = std::min(kWinogradTiles, end - at);
    transform_pixels(grid, from, at, n, pixels, pixel_stride, kWinogradTiles);
    for (i64 output = 0; output < outputs_; output += strip) {
      const i64 used = std::min(strip, outputs_ - output);
      const TileSource gradient{dy + (group * outputs_ + output) * out_plane, used, shape_.outputs * out_plane, grid.positions, Pair(0)};
      transform_positions(grid, gradient, at, n, positions, position_stride, kWinogradTiles);
      for (i64 point = 0; point < kTilePoints; ++point) {
        gemm::pack(gemm::Side::b, gemm::Operand<float>{positions + point * position_stride, kWinogradTiles, 1}, used, n, packed);
        gemm::multiply_lines<float>(channels, used, {pixels + point * pixel_stride, rows.data(), &line, 1, n}, {packed, n},
                                    to + (point * columns_.channels + channel) * row_ + output, row_, at > begin);
      }
    }
  }
}

// Computes dw for outputs [begin, end). The parts of the sums are added in order.
void WinogradGradient::finish(const float* sums, i64 group, i64 begin, i64 end, float* dw) const {
  alignas(64) float points[kTilePoints][kOutputs], taps[9][kOutputs];
  const float* first = sums + group * parts_ * part_elems() + begin;
  for (i64 c = 0; c < columns_.channels; ++c) {
    for (i64 point = 0; point < kTilePoints; ++point) {
      const float* from = first + (point * columns_.channels + c) * row_;
      std::copy_n(from, kOutputs, points[point]);
      for (i64 part = 1; part < parts_; ++part) {
        from += part_elems();
        for (i64 i = 0; i < kOutputs; ++i) points[point][i] += from[i];
      }
    }
    transform_tap_sums(points[0], kOutputs, kOutputs, taps[0], kOutputs);
    for (i64 i = 0; i < end - begin; ++i) {
      float* to = dw + ((group * outputs_ + begin + i) * columns_.channels + c) * 9;
      for (i64 tap = 0; tap < 9; ++tap) to[tap] = taps[tap][i];
    }
  }
}

void WinogradGradient::run(const float* x, const float* dy, float* dw, float* sums) const {
  Stream::current().run(shape_.groups * parts_ * blocks_, [&](i64 task, int) {
    const i64 block = task % blocks_, part = task / blocks_ % parts_, group = task / (blocks_ * parts_),
              channel = block * kWinogradChannels;
    const i64 strips = ceil_div(tiles_, kWinogradTiles);
    const auto at = [&](i64 which) { return std::min(tiles_, which * strips / parts_ * kWinogradTiles); };
    add(x, dy, group, channel, std::min(kWinogradChannels, columns_.channels - channel), at(part), at(part + 1),
        sums + (group * parts_ + part) * part_elems());
  });
  const i64 pieces = ceil_div(outputs_, kOutputs);
  Stream::current().run(shape_.groups * pieces, [&](i64 task, int) {
    const i64 begin = task % pieces * kOutputs;
    finish(sums, task / pieces, begin, std::min(outputs_, begin + kOutputs), dw);
  });
}

}  // namespace spillway::kernels
