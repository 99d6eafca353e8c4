// The tiles of Winograd's F(2 x 2, 3 x 3): how an image is cut into them, and what is made of them, f32. A tile has 4 x 4 pixels, which
// overlap with its neighbours', and 2 x 2 positions. Transformed it has 16 points. For conv_winograd*.cc alone; no allocation, thread-safe.
// Where so many elements are written, whole vectors are: kTileSlack more.
#pragma once
#include "kernels/convolution/conv_columns.h"

namespace spillway::kernels {

inline constexpr i64 kTilePoints = 16, kTileSlack = 16;

/// The tiles of an image, in `blocks` of equal width, at most kMostWidth. Those of a block are numbered row after row, with an idle one
/// between the rows; strips of tiles run over the blocks of all images.
struct TileGrid {
  static constexpr i64 kMostWidth = 48;
  i64 rows, width, blocks, pitch, tiles;  // pitch: tiles from row to row; tiles: of a block
  Pair positions;

  explicit TileGrid(Pair positions);
};

/// Tiles [begin, begin + number) of a block, at `place` of a strip.
struct TileStretch {
  i64 image, block, begin, number, place;
};
/// f(stretch) for what the strip [begin, begin + n) has of every block.
template <class F>
void for_blocks(const TileGrid& grid, i64 begin, i64 n, F f) {
  for_stretches(grid.tiles, begin, begin + n, [&](i64 block, i64 from, i64 number, i64 place) {
    f(TileStretch{block / grid.blocks, block % grid.blocks, from, number, place});
  });
}

/// Channels [0, count) of images, `image_stride` apart, and the row and column of pixel (0, 0) of tile 0.
struct TileSource {
  const float* data;
  i64 count, image_stride;
  Pair extent, first;
};
/// to[point * point_stride + channel * channel_stride + i] = (B^T d B)[point] of the strip's tile i, d its pixels; zero outside the image.
/// n at most kWinogradTiles.
void transform_pixels(const TileGrid& grid, const TileSource& source, i64 begin, i64 n, float* to, i64 point_stride, i64 channel_stride);
/// The same of (A y A^T)[point], y its positions: first = {0, 0}. Of idle tiles zero.
void transform_positions(const TileGrid& grid, const TileSource& source, i64 begin, i64 n, float* to, i64 point_stride, i64 channel_stride);

/// upper[2 i + c], lower[2 i + c] = (A^T s A)[0][c], [1][c] + bias, s = sums[point * point_stride + i] for i < n.
void transform_sums(const float* sums, i64 point_stride, i64 n, float bias, float* upper, float* lower);

/// to[point * point_stride + i] = (G g G^T)[point], g = taps[tap * tap_stride + i] for i < n.
void transform_taps(const float* taps, i64 tap_stride, i64 n, float* to, i64 point_stride);
/// taps[tap * tap_stride + i] = (G^T s G)[tap], s = sums[point * point_stride + i] for i < n.
void transform_tap_sums(const float* sums, i64 point_stride, i64 n, float* taps, i64 tap_stride);

}  // namespace spillway::kernels
