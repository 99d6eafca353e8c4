// 3 x 3 convolutions of stride 1 in f32 by Winograd's F(2 x 2, 3 x 3) (Lavin and Gray, arXiv 1509.09308), for shapes where that is faster.
// For each 2 x 2 positions and channel it needs 16 multiplications, as part of 16 matrix products, instead of 36. Tiles of 4 x 4 pixels are
// transformed (conv_winograd_tiles.h) right before they are multiplied; only weights are transformed in advance. Only files named conv*
// include this header. Allocates nothing; thread-safe. Transforms are fixed sequences of additions, and sums over channels are chains of
// kWinogradDepth as in gemm.h. So an output depends bitwise on its image, its weights and the shape alone, not on other images, threads or
// instruction sets. Rounding errors are those of a sum of 4 x 4 products per channel. They are relative to the largest pixel near a
// position, not only to the pixels under its taps; for pixels of similar size they are about those of the plain sum. A pixel that is not
// finite makes all positions of its tiles NaN.
#pragma once
#include "kernels/images/conv_columns.h"

namespace spillway::kernels {

/// kWinogradDepth is the number of channels in one chain of multiply-adds. For the weight's gradient, kWinogradTiles
/// is the number of tiles in one chain, and kWinogradChannels the number of channels of one task. With fewer channels
/// y's gradient would be transformed more often; with more channels the tiles would not fit the second-level cache.
inline constexpr i64 kWinogradDepth = 64, kWinogradTiles = 96, kWinogradChannels = 64;

/// Returns whether Winograd's algorithm is used for a product. The answer depends on the shape of one
/// image, its channels and `rows` (the output channels of a group), never on the number of images.
bool takes_winograd(const Columns& columns, i64 rows);
/// Returns whether Winograd's algorithm is used for the gradient of the convolution's weights.
bool takes_winograd_gradient(const ConvShape& shape);
/// Returns how many elements the transformed weights of one group take.
i64 winograd_elems(i64 channels, i64 rows);

/// Computes out[row] = the convolution of `columns` with the weights of the row (+ bias[row]). `out` is contiguous as [rows, positions] in
/// every image and group.
struct WinogradProduct {
  Columns columns;
  Weights<float> weights;
  const float* source;
  const float* bias;  // the bias; null if there is none
  float* out;
  i64 image_stride;                 // distance between images in `out`, in elements
  i64 groups, rows;                 // `rows` is the number of output channels of one group
  i64 source_group, weights_group;  // the distances between groups in the source, and in the weights
  float* packed;                    // memory for the transformed weights: winograd_elems() for each group

  void run() const;
};

/// Computes the gradient of a convolution's weights in f32. takes_winograd_gradient() must be true for the shape.
class WinogradGradient {
 public:
  explicit WinogradGradient(const ConvShape& shape);
  /// Returns how many elements of scratch memory run() needs as `sums`.
  i64 elems() const { return shape_.groups * parts_ * part_elems(); }
  /// Writes dw[O, C / groups, 3, 3]; x and dy have the shapes of conv.h.
  void run(const float* x, const float* dy, float* dw, float* sums) const;

 private:
  i64 part_elems() const { return 16 * columns_.channels * row_; }
  void add(const float* x, const float* dy, i64 group, i64 channel, i64 channels, i64 begin, i64 end, float* to) const;
  void finish(const float* sums, i64 group, i64 begin, i64 end, float* dw) const;

  ConvShape shape_;
  Columns columns_;
  // tiles_: tiles of all images; outputs_: outputs of a group; row_: elements of the sums for a channel; parts_: parts summed separately
  i64 tiles_, outputs_, row_, blocks_, parts_;
};

}  // namespace spillway::kernels
