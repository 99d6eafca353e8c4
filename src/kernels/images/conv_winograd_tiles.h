// The tiles of Winograd's F(2 x 2, 3 x 3) in f32: how an image is divided into tiles, and how tiles are
// transformed. A tile has 4 x 4 pixels, which overlap with those of its neighbours, and 2 x 2 output positions.
// A transformed tile has 16 points. Only conv_winograd*.cc include this header. Allocates nothing; thread-safe.
// Results are written in whole vectors, so every destination needs room for kTileSlack elements more.
#pragma once
#include "kernels/images/conv_columns.h"

namespace spillway::kernels {

inline constexpr i64 kTilePoints = 16, kTileSlack = 16;

/// Divides an image into tiles. The image's width is divided into `blocks` blocks of `width` tiles,
/// at most kMostWidth. The tiles of a block are numbered row after row; between two rows one number
/// stays unused. A strip is a range of tile numbers, counted on over the blocks of all images.
struct TileGrid {
  static constexpr i64 kMostWidth = 48;
  // pitch: difference between the tile numbers of one row and the next; tiles: tile numbers in a block
  i64 rows, width, blocks, pitch, tiles;
  Pair positions;

  explicit TileGrid(Pair positions);
};

/// The tiles [begin, begin + number) of one block of one image, which are tiles `place` and following of a strip.
struct TileStretch {
  i64 image, block, begin, number, place;
};
/// Calls f(stretch) for each block's part of the strip of tiles [begin, begin + n).
template <class F>
void for_blocks(const TileGrid& grid, i64 begin, i64 n, F f) {
  for_stretches(grid.tiles, begin, begin + n, [&](i64 block, i64 from, i64 number, i64 place) {
    f(TileStretch{block / grid.blocks, block % grid.blocks, from, number, place});
  });
}

/// The source of tiles: `count` channels, in images that are `image_stride` apart. `first` is the row and column of pixel (0, 0) of tile 0.
struct TileSource {
  const float* data;
  i64 count, image_stride;
  Pair extent, first;
};
/// Transforms the pixels of tiles [begin, begin + n). Computes to[point * point_stride + channel * channel_stride + i] = (B^T d B)[point],
/// where d are the pixels of tile begin + i, zero outside the image. n is at most kWinogradTiles.
void transform_pixels(const TileGrid& grid, const TileSource& source, i64 begin, i64 n, float* to, i64 point_stride, i64 channel_stride);
/// Transforms the output positions of tiles [begin, begin + n), with the layout of transform_pixels(): computes
/// (A y A^T)[point], where y are the positions of a tile. source.first must be {0, 0}. Unused tiles give zeros.
void transform_positions(const TileGrid& grid, const TileSource& source, i64 begin, i64 n, float* to, i64 point_stride, i64 channel_stride);

/// Transforms sums back to output positions, for n tiles. With s = sums[point * point_stride + i] for tile i, computes upper[2 i + c] =
/// (A^T s A)[0][c] + bias and lower[2 i + c] = (A^T s A)[1][c] + bias.
void transform_sums(const float* sums, i64 point_stride, i64 n, float bias, float* upper, float* lower);

/// Transforms n kernels. With g = taps[tap * tap_stride + i] for kernel i, computes to[point * point_stride + i] = (G g G^T)[point].
void transform_taps(const float* taps, i64 tap_stride, i64 n, float* to, i64 point_stride);
/// Transforms sums back to the gradients of n kernels. With s = sums[point * point_stride + i] for kernel i, computes taps[tap * tap_stride
/// + i] = (G^T s G)[tap].
void transform_tap_sums(const float* sums, i64 point_stride, i64 n, float* taps, i64 tap_stride);

}  // namespace spillway::kernels
