// A padded copy of a piece of an image, arranged so that a convolution reads it in place. Every tap's row of the matrix [K, J]
// (conv_columns.h) lies contiguously in the tile at an offset of its own, so products read it there (gemm_in_place.h) and each element is
// copied once instead of once per tap. Lines are padded with zeros; each phase of a stride has its own lines. Used only by conv*_cpu.cc;
// allocates nothing; thread-safe.
#pragma once
#include <array>

#include "kernels/convolution/conv_columns.h"

namespace spillway::kernels {

inline constexpr i64 kTileBytes = 192 * kKiB;  // upper limit: what a task may keep in the second-level cache beside a panel of weights

/// One axis of a tile: tap t reads for position i the place i + shift[t] in the lines of phase[t]. Place p of a phase holds source[p * step
/// + start[phase]].
struct TileAxis {
  i64 step, phases = 0, span = 0;  // span: the largest shift, by which taps reach beyond the last position's own place
  std::array<i64, kMaxKernel> phase{}, shift{}, start{};
  explicit TileAxis(const AxisTaps& taps);
};

/// The layout of tiles of `channels` channels and at most `rows` rows of the grid. There must be taps (k() > 0).
class TileShape {
 public:
  TileShape(const Columns& columns, i64 channels, i64 rows);

  i64 rows() const { return rows_; }
  /// Returns the distance from a position to the one below it. The positions [0, positions_in(rows)) of a tap are contiguous; those between
  /// the grid's rows are computed but not used.
  i64 pitch() const { return pitch_; }
  i64 positions_in(i64 rows) const { return (rows - 1) * pitch_ + columns_.w.positions; }
  /// Returns the elements of a tile, including those behind its end that are read but not used.
  i64 elems() const { return channels_ * channel_ + slack_; }
  /// Writes to[K of the channels]: the offset of each tap's position 0 in the tile.
  void offsets(i32* to) const;
  /// Copies rows [row, row + number) of the grid for `channels` channels. `source` points to the first of these channels in the image.
  template <class T, class P>
  void fill(const T* source, i64 channels, i64 row, i64 number, P* to) const;

 private:
  const Columns& columns_;
  TileAxis h_, w_;
  i64 channels_, rows_, shared_, pitch_, plane_, channel_, slack_;
};

}  // namespace spillway::kernels
