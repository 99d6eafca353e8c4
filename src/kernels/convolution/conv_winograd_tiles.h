// The tiles of Winograd's F(2 x 2, 3 x 3) in f32: how an image is cut into them, and how they are transformed. A tile has 4 x 4 pixels,
// which overlap with its neighbours', and 2 x 2 output positions; its transform has 16 points. Used only by conv_winograd*.cc; allocates
// nothing; thread-safe. Results are written in whole vectors, so every destination needs room for kTileSlack elements more.
#pragma once
#include "kernels/convolution/conv_columns.h"

namespace spillway::kernels {

inline constexpr i64 kTilePoints = 16, kTileSlack = 16;

/// The tiles of an image, in `blocks` blocks of equal width, at most kMostWidth. A block's tiles are numbered row after row, with one
/// unused tile between rows. Strips of tiles run over the blocks of all images.
struct TileGrid {
  static constexpr i64 kMostWidth = 48;
  i64 rows, width, blocks, pitch, tiles;  // pitch: tiles from one row to the next; tiles: number of tiles in a block
  Pair positions;

  explicit TileGrid(Pair positions);
};

/// Tiles [begin, begin + number) of one block of one image, at index `place` of a strip.
struct TileStretch {
  i64 image, block, begin, number, place;
};
/// Calls f(stretch) for each block's part of the strip [begin, begin + n).
template <class F>
void for_blocks(const TileGrid& grid, i64 begin, i64 n, F f) {
  for_stretches(grid.tiles, begin, begin + n, [&](i64 block, i64 from, i64 number, i64 place) {
    f(TileStretch{block / grid.blocks, block % grid.blocks, from, number, place});
  });
}

/// Channels [0, count) of images that are `image_stride` apart, and the row and column of pixel (0, 0) of tile 0.
struct TileSource {
  const float* data;
  i64 count, image_stride;
  Pair extent, first;
};
/// Computes to[point * point_stride + channel * channel_stride + i] = (B^T d B)[point], where d are the pixels of the strip's tile i, zero
/// outside the image. n is at most kWinogradTiles.
void transform_pixels(const TileGrid& grid, const TileSource& source, i64 begin, i64 n, float* to, i64 point_stride, i64 channel_stride);
/// Does the same with (A y A^T)[point], where y are the tile's positions; source.first must be {0, 0}. Unused tiles give zeros.
void transform_positions(const TileGrid& grid, const TileSource& source, i64 begin, i64 n, float* to, i64 point_stride, i64 channel_stride);

/// Computes upper[2 i + c] = (A^T s A)[0][c] + bias and lower[2 i + c] = (A^T s A)[1][c] + bias with s = sums[point * point_stride + i],
/// for i < n.
void transform_sums(const float* sums, i64 point_stride, i64 n, float bias, float* upper, float* lower);

/// Computes to[point * point_stride + i] = (G g G^T)[point] with g = taps[tap * tap_stride + i], for i < n.
void transform_taps(const float* taps, i64 tap_stride, i64 n, float* to, i64 point_stride);
/// Computes taps[tap * tap_stride + i] = (G^T s G)[tap] with s = sums[point * point_stride + i], for i < n.
void transform_tap_sums(const float* sums, i64 point_stride, i64 n, float* taps, i64 tap_stride);

}  // namespace spillway::kernels
