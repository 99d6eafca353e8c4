#include "kernels/images/conv_winograd.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "device/stream.h"
#include "kernels/images/conv_winograd_tiles.h"
#include "kernels/products/gemm_in_place.h"

namespace spillway::kernels {
namespace {

constexpr i64 kStripTiles = gemm::kStrip;
constexpr i64 kMostRows = 128;  // the most rows of a task: its sums and the tiles of a strip fit a second-level cache of 1 MiB
constexpr i64 kTasks = 8;       // the fewest tasks if there is enough work, so that several threads are busy

// Measured costs, in units of one multiply-add. kTransform: transforming a tile of pixels or of sums. kPackedTransform:
// transforming and packing a tile of positions. kLineCut: splitting a line of pixels. kWeight: transforming a weight;
// one eighth of this cost is counted for each image, since the number of images must not matter.
constexpr i64 kTransform = 150, kPackedTransform = 400, kLineCut = 200, kWeight = 512;

i64 first(const AxisTaps& axis) { return *std::min_element(axis.offset.begin(), axis.offset.begin() + 3); }

// Returns whether the axis has exactly three taps that read three adjacent pixels, beginning at pixel first() for position 0.
bool has_three_taps(const AxisTaps& axis) {
  if (axis.count != 3 || axis.step != 1) return false;
  const i64 least = first(axis);
  return std::all_of(axis.offset.begin(), axis.offset.begin() + 3, [least](i64 offset) { return offset <= least + 2; });
}

class Task {
 public:
  Task(const WinogradProduct& product, const TileGrid& grid) : p_(product), grid_(grid) {}

  // Computes the output rows [row, row + m) for the tiles of one strip.
  void run(i64 group, i64 strip, i64 row, i64 m) const {
    alignas(64) float points[kTilePoints * (kWinogradDepth * kStripTiles + kTileSlack)];
    alignas(64) float sums[kTilePoints * kMostRows * kStripTiles];
    alignas(64) i32 offsets[kWinogradDepth];
    for (i64 k = 0; k < kWinogradDepth; ++k) offsets[k] = static_cast<i32>(k * kStripTiles);
    const Columns& c = p_.columns;
    const i64 begin = strip * kStripTiles, n = std::min(kStripTiles, c.images * grid_.blocks * grid_.tiles - begin);
    for (i64 at = 0; at < c.channels; at += kWinogradDepth) {
      const i64 depth = std::min(kWinogradDepth, c.channels - at), point_stride = depth * kStripTiles + kTileSlack;
      const TileSource source{p_.source + group * p_.source_group + at * c.h.source * c.w.source, depth, c.image_stride,
                              Pair(c.h.source, c.w.source), Pair(first(c.h), first(c.w))};
      transform_pixels(grid_, source, begin, n, points, point_stride, kStripTiles);
      for (i64 point = 0; point < kTilePoints; ++point) {
        gemm::multiply_columns<float>(m, n, depth, {p_.packed + packed_at(group, at, point, row), depth}, points + point * point_stride,
                                      offsets, sums + point * m * kStripTiles, at > 0);
      }
    }
    store(group, row, m, begin, n, sums);
  }

  // Transforms and packs the weights of rows [row, row + gemm::kStrip) and channels [at, at + kWinogradDepth).
  void pack(i64 group, i64 at, i64 row) const {
    alignas(64) float taps[9 * kWinogradDepth], points[gemm::kStrip][kTilePoints * kWinogradDepth];
    const AxisTaps &h = p_.columns.h, &w = p_.columns.w;
    const i64 depth = std::min(kWinogradDepth, p_.columns.channels - at), used = std::min(gemm::kStrip, p_.rows - row);
    std::array<i64, 9> places{};  // the index of each tap within the kernel, in the order of the pixels they read
    for (size_t i = 0; i < 9; ++i) {
      const size_t x = i / 3, y = i % 3;
      places[static_cast<size_t>((h.offset[x] - first(h)) * 3 + w.offset[y] - first(w))] = h.tap[x] * p_.weights.kernel.w + w.tap[y];
    }
    for (i64 r = 0; r < used; ++r) {
      const float* from = p_.weights.data + group * p_.weights_group + (row + r) * p_.weights.row_stride + at * p_.weights.channel_stride;
      for (i64 c = 0; c < depth; ++c, from += p_.weights.channel_stride) {
        for (size_t tap = 0; tap < 9; ++tap) taps[static_cast<i64>(tap) * kWinogradDepth + c] = from[places[tap]];
      }
      transform_taps(taps, kWinogradDepth, depth, points[r], kWinogradDepth);
    }
    for (i64 point = 0; point < kTilePoints; ++point) {
      const gemm::Operand<float> rows{points[0] + point * kWinogradDepth, kTilePoints * kWinogradDepth, 1};
      gemm::pack(gemm::Side::a, rows, used, depth, p_.packed + packed_at(group, at, point, row));
    }
  }

 private:
  // Returns where packed weights begin. They are ordered by chunks of channels,
  // within a chunk by points of the transformed tile, and within a point by rows.
  i64 packed_at(i64 group, i64 at, i64 point, i64 row) const {
    const i64 rows = round_up(p_.rows, gemm::kStrip), depth = std::min(kWinogradDepth, p_.columns.channels - at);
    return group * winograd_elems(p_.columns.channels, p_.rows) + (kTilePoints * at + point * depth) * rows + row * depth;
  }

  void store(i64 group, i64 row, i64 m, i64 begin, i64 n, const float* sums) const {
    alignas(64) float lines[2][2 * kStripTiles];
    const i64 height = grid_.positions.h, width = grid_.positions.w;
    for (i64 r = 0; r < m; ++r) {
      const i64 output = group * p_.rows + row + r;
      transform_sums(sums + r * kStripTiles, m * kStripTiles, n, p_.bias ? p_.bias[output] : 0, lines[0], lines[1]);
      for_blocks(grid_, begin, n, [&](const TileStretch& s) {
        float* image = p_.out + s.image * p_.image_stride + output * height * width;
        for_stretches(grid_.pitch, s.begin, s.begin + s.number, [&](i64 line, i64 from, i64 number, i64 place) {
          const i64 column = 2 * (s.block * grid_.width + from), used = std::min(2 * std::min(number, grid_.width - from), width - column);
          for (i64 half = 0; used > 0 && half < 2 && 2 * line + half < height; ++half) {
            std::memcpy(image + (2 * line + half) * width + column, lines[half] + 2 * (s.place + place),
                        static_cast<size_t>(used) * sizeof(float));
          }
        });
      });
    }
  }

  const WinogradProduct& p_;
  const TileGrid& grid_;
};

TileGrid grid_of(const Columns& c) { return TileGrid(Pair(c.h.positions, c.w.positions)); }

}  // namespace

bool takes_winograd(const Columns& c, i64 rows) {
  if (!has_three_taps(c.h) || !has_three_taps(c.w)) return false;
  const TileGrid grid = grid_of(c);
  const i64 tiles = grid.tiles * grid.blocks, lines = 2 * (grid.rows + 1) * grid.blocks, weights = c.channels * rows;
  const i64 transforms = (tiles * kTransform + lines * kLineCut) * c.channels + tiles * kTransform * rows + kWeight / 8 * weights;
  return tiles * kTilePoints * weights + transforms < c.h.positions * c.w.positions * 9 * weights;
}

bool takes_winograd_gradient(const ConvShape& s) {
  const Columns c = forward_columns(s);
  if (s.window.kernel != Pair(3) || !has_three_taps(c.h) || !has_three_taps(c.w)) return false;
  const TileGrid grid = grid_of(c);
  const i64 tiles = grid.tiles * grid.blocks, weights = c.channels * s.outputs_of_group();
  const i64 positions = kPackedTransform * s.outputs_of_group() * ceil_div(c.channels, kWinogradChannels);
  const i64 transforms = tiles * (kTransform * c.channels + positions) + kWeight / 8 * weights;
  return tiles * kTilePoints * weights + transforms < c.h.positions * c.w.positions * 9 * weights;
}

i64 winograd_elems(i64 channels, i64 rows) { return kTilePoints * channels * round_up(rows, gemm::kStrip); }

void WinogradProduct::run() const {
  const TileGrid grid = grid_of(columns);
  const Task task(*this, grid);
  const i64 chunks = ceil_div(columns.channels, kWinogradDepth), row_strips = ceil_div(rows, gemm::kStrip);
  Stream::current().run(groups * chunks * row_strips, [&](i64 i, int) {
    task.pack(i / (chunks * row_strips), i / row_strips % chunks * kWinogradDepth, i % row_strips * gemm::kStrip);
  });
  const i64 strips = ceil_div(columns.images * grid.blocks * grid.tiles, kStripTiles);
  // The rows are cut into as few ranges as kMostRows allows, since each range
  // transforms the tiles again, but into enough tasks for several threads.
  const i64 fewest = ceil_div(rows, kMostRows), wanted = std::min(ceil_div(rows, i64(16)), ceil_div(kTasks, strips * groups));
  const i64 step = round_up(ceil_div(rows, std::max(fewest, wanted)), 16), blocks = ceil_div(rows, step);
  Stream::current().run(groups * strips * blocks, [&](i64 i, int) {
    const i64 row = i % blocks * step;
    task.run(i / (strips * blocks), i / blocks % strips, row, std::min(step, rows - row));
  });
}

}  // namespace spillway::kernels
