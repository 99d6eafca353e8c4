// A tile is a padded copy of some rows of an image, arranged so that a convolution can read it in place. For every tap, the elements that
// the tap reads at successive positions lie contiguously in the tile, from an offset that differs from tap to tap. So each row of the
// matrix [K, J] (conv_columns.h) is a piece of the tile. Products read the rows in the tile (gemm_in_place.h), and each element is copied
// once instead of once per tap. Lines are padded with zeros. If there is a stride, elements are sorted by their phase (index modulo
// stride), and each phase has its own lines. Only conv*_cpu.cc include this header. Allocates nothing; thread-safe.
#pragma once
#include <array>

#include "kernels/images/conv_columns.h"

namespace spillway::kernels {

inline constexpr i64 kTileBytes = 192 * kKiB;  // the most bytes of a tile, which must fit the second-level cache beside a panel of weights

/// One axis (rows or columns) of a tile. At position i, tap t reads place i + shift[t] in the lines of phase[t]. Place p of a phase holds
/// source[p * step + start[phase]].
struct TileAxis {
  i64 step, phases = 0, span = 0;  // `span` is the largest shift of a tap
  std::array<i64, kMaxKernel> phase{}, shift{}, start{};
  explicit TileAxis(const AxisTaps& taps);
};

/// The layout of tiles that hold `channels` channels and the elements that at most
/// `rows` rows of the grid read. There must be at least one tap (columns.k() > 0).
class TileShape {
 public:
  TileShape(const Columns& columns, i64 channels, i64 rows);

  i64 rows() const { return rows_; }
  /// pitch() returns the distance in a tile between a position and the one below it. For every tap, the elements for positions
  /// [0, positions_in(rows)) are contiguous. Between two rows of the grid there are positions that are computed but not used.
  i64 pitch() const { return pitch_; }
  i64 positions_in(i64 rows) const { return (rows - 1) * pitch_ + columns_.w.positions; }
  /// Returns the number of elements of a tile. It includes elements behind the tile's end that are read but not used.
  i64 elems() const { return channels_ * channel_ + slack_; }
  /// Writes to[k], for each channel and tap of a tile: the offset in the tile of the element that the tap reads at position 0.
  void offsets(i32* to) const;
  /// Fills a tile with the elements of `channels` channels that the grid rows [row,
  /// row + number) read. `source` points to the first of these channels in the image.
  template <class T, class P>
  void fill(const T* source, i64 channels, i64 row, i64 number, P* to) const;

 private:
  const Columns& columns_;
  TileAxis h_, w_;
  i64 channels_, rows_, shared_, pitch_, plane_, channel_, slack_;
};

}  // namespace spillway::kernels
