// A piece of an image as a convolution's taps read it: every tap's column of the matrix [K, J] (conv_columns.h) lies in the tile as it is,
// at an offset of its own, so that products read it in place (gemm_in_place.h) and each element is copied once instead of once a tap. Lines
// are padded with zeros; of a stride's phases each has lines of its own. For conv*_cpu.cc alone; no allocation, thread-safe.
#pragma once
#include <array>

#include "kernels/convolution/conv_columns.h"

namespace spillway::kernels {

inline constexpr i64 kTileBytes = 192 * kKiB;  // at most: what a task may keep beside a panel of weights in the second-level cache

/// One axis: position i meets tap t at place i + shift[t] of the lines (or in them) of phase[t]; place p of a phase is source[p * step +
/// start[phase]].
struct TileAxis {
  i64 step, phases = 0, span = 0;  // span: places beyond the last position's own
  std::array<i64, kMaxKernel> phase{}, shift{}, start{};
  explicit TileAxis(const AxisTaps& taps);
};

/// Tiles of `channels` channels and at most `rows` rows of the grid. There must be taps (k() > 0).
class TileShape {
 public:
  TileShape(const Columns& columns, i64 channels, i64 rows);

  i64 rows() const { return rows_; }
  /// From a position to the one below it. Positions [0, positions_in(rows)) of a tap follow each other; those between the rows are idle.
  i64 pitch() const { return pitch_; }
  i64 positions_in(i64 rows) const { return (rows - 1) * pitch_ + columns_.w.positions; }
  /// Elements of a tile, with those that are read idly behind its end.
  i64 elems() const { return channels_ * channel_ + slack_; }
  /// to[K of the channels]: where each tap's position 0 lies.
  void offsets(i32* to) const;
  /// Rows [row, row + number) of the grid, of `channels` channels. `source`: the image's first channel of them.
  template <class T, class P>
  void fill(const T* source, i64 channels, i64 row, i64 number, P* to) const;

 private:
  const Columns& columns_;
  TileAxis h_, w_;
  i64 channels_, rows_, shared_, pitch_, plane_, channel_, slack_;
};

}  // namespace spillway::kernels
