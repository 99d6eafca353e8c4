// Convolutions of 3 x 3 taps and stride 1 in f32 by F(2 x 2, 3 x 3) of Winograd (Lavin and Gray, arXiv 1509.09308), where that pays: 16
// products of matrices for each 2 x 2 positions instead of 36 multiplications a channel. For conv*_cpu.cc alone; no allocation,
// thread-safe. Pixels are put into tiles of 4 x 4 (conv_winograd_tiles.h) an instant before they are multiplied; only weights are
// transformed ahead. Transforms are fixed sequences of additions, sums over channels chains as gemm.h's of kWinogradDepth: the bits of an
// output depend on its image, its weights and the shape, not on other images, threads or instruction sets. Errors: as of the sum of 4 x 4
// products a channel, so relative to the largest pixel near a position and not under its taps; where pixels are alike about the plain
// sum's. One that is not finite makes the positions of its tiles NaN.
#pragma once
#include "kernels/convolution/conv_columns.h"

namespace spillway::kernels {

/// Channels of one chain of multiply-adds. Of the weight's gradient: tiles of one, and channels of a task (for fewer the gradient of y is
/// transformed more often, for more the tiles leave the second-level cache).
inline constexpr i64 kWinogradDepth = 64, kWinogradTiles = 96, kWinogradChannels = 64;

/// Whether it is done so: a function of one image's shape, of its channels and of `rows`, the outputs of a group; not of how many images.
bool takes_winograd(const Columns& columns, i64 rows);
/// The same of the gradient of its weights.
bool takes_winograd_gradient(const ConvShape& shape);
/// Elements of transformed weights of one group.
i64 winograd_elems(i64 channels, i64 rows);

/// out[row] = the convolution of `columns` (+ bias[row]), contiguous [rows, positions] in every image and group.
struct WinogradProduct {
  Columns columns;
  Weights<float> weights;
  const float* source;
  const float* bias;  // or null
  float* out;
  i64 image_stride;                 // of out
  i64 groups, rows;                 // rows: of one group
  i64 source_group, weights_group;  // elements from group to group
  float* packed;                    // winograd_elems a group

  void run() const;
};

/// Of a convolution's weights in f32, where takes_winograd_gradient.
class WinogradGradient {
 public:
  explicit WinogradGradient(const ConvShape& shape);
  /// Of sums.
  i64 elems() const { return shape_.groups * parts_ * part_elems(); }
  /// dw[O, C / groups, 3, 3]; x, dy: as of conv.h.
  void run(const float* x, const float* dy, float* dw, float* sums) const;

 private:
  i64 part_elems() const { return 16 * columns_.channels * row_; }
  void add(const float* x, const float* dy, i64 group, i64 channel, i64 channels, i64 begin, i64 end, float* to) const;
  void finish(const float* sums, i64 group, i64 begin, i64 end, float* dw) const;

  ConvShape shape_;
  Columns columns_;
  i64 tiles_, outputs_, row_, blocks_, parts_;  // tiles: of all images; row: elements of a channel's sums, one for each output
};

}  // namespace spillway::kernels
