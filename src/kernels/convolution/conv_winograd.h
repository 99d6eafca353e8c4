// 3 x 3 convolutions of stride 1 in f32 by Winograd's F(2 x 2, 3 x 3) (Lavin and Gray, arXiv 1509.09308), where that is faster: 16 matrix
// products for each 2 x 2 positions instead of 36 multiplications per channel. Used only by conv*_cpu.cc; allocates nothing; thread-safe.
// Pixels are transformed into tiles of 4 x 4 (conv_winograd_tiles.h) right before they are multiplied; only weights are transformed in
// advance.
// Transforms are fixed sequences of additions, and sums over channels are chains of kWinogradDepth as in gemm.h. So an output's bits depend
// on its image, its weights and the shape, not on other images, threads or instruction sets. Rounding errors are those of a sum of 4 x 4
// products per channel: relative to the largest pixel near a position, not only to those under its taps. For pixels of similar size they
// are about those of the plain sum. A pixel that is not finite makes all positions of its tiles NaN.
#pragma once
#include "kernels/convolution/conv_columns.h"

namespace spillway::kernels {

/// Channels in one chain of multiply-adds; for the weight's gradient, tiles in one chain and channels of one task. (With fewer channels the
/// gradient of y is transformed more often, with more the tiles no longer fit the second-level cache.)
inline constexpr i64 kWinogradDepth = 64, kWinogradTiles = 96, kWinogradChannels = 64;

/// Returns whether Winograd's algorithm is used. It depends on one image's shape, its channels and `rows`, the outputs of a group, never on
/// the number of images.
bool takes_winograd(const Columns& columns, i64 rows);
/// Returns the same for the gradient of the convolution's weights.
bool takes_winograd_gradient(const ConvShape& shape);
/// Returns the elements that the transformed weights of one group take.
i64 winograd_elems(i64 channels, i64 rows);

/// Computes out[row] = the convolution of `columns` (+ bias[row]), contiguous as [rows, positions] in every image and group.
struct WinogradProduct {
  Columns columns;
  Weights<float> weights;
  const float* source;
  const float* bias;  // null: no bias
  float* out;
  i64 image_stride;                 // elements from image to image of `out`
  i64 groups, rows;                 // rows: outputs of one group
  i64 source_group, weights_group;  // elements between two groups of the source, and of the weights
  float* packed;                    // scratch for the transformed weights: winograd_elems() for each group

  void run() const;
};

/// The gradient of a convolution's weights in f32, for shapes where takes_winograd_gradient() is true.
class WinogradGradient {
 public:
  explicit WinogradGradient(const ConvShape& shape);
  /// Returns the elements that run() needs in `sums`.
  i64 elems() const { return shape_.groups * parts_ * part_elems(); }
  /// Writes dw[O, C / groups, 3, 3]; x and dy have the shapes of conv.h.
  void run(const float* x, const float* dy, float* dw, float* sums) const;

 private:
  i64 part_elems() const { return 16 * columns_.channels * row_; }
  void add(const float* x, const float* dy, i64 group, i64 channel, i64 channels, i64 begin, i64 end, float* to) const;
  void finish(const float* sums, i64 group, i64 begin, i64 end, float* dw) const;

  ConvShape shape_;
  Columns columns_;
  i64 tiles_, outputs_, row_, blocks_, parts_;  // tiles_: tiles of all images; row_: elements in a channel's row of sums, at least one per
                                                // output
};

}  // namespace spillway::kernels
