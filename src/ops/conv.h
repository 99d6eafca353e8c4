// Convolution of images and of rows, f32, f64, bf16 and f16 (summed in f32, rounded once), inputs of any strides: cross-correlation, as
// PyTorch's. Legend: N images, C and O channels in and out, H and W rows and columns, L elements of a row. Kernels have at most 64 rows and
// columns. Throws Error(bug), with the shapes and dtypes that came, on those that do not go together.
#pragma once
#include "autograd/tape.h"
#include "kernels/window.h"

namespace spillway::ops {

using autograd::Variable;
using kernels::Pair;

/// Extent: Pair, of rows and columns, or i64, of a row.
template <class Extent>
struct ConvOptionsOf {
  Extent stride = 1, padding = 0, dilation = 1;
  i64 groups = 1;
};
using ConvOptions = ConvOptionsOf<Pair>;
using Conv1dOptions = ConvOptionsOf<i64>;

/// PyTorch's conv2d: x[N, C, H, W], w[O, C / groups, kh, kw], bias[O] or no value -> [N, O, Ho, Wo].
Variable conv2d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options = {});
/// x[N, C, L], w[O, C / groups, k], bias[O] or no value -> [N, O, Lo].
Variable conv1d(const Variable& x, const Variable& w, const Variable& bias, const Conv1dOptions& options = {});

template <class Extent>
struct ConvTransposeOptionsOf : ConvOptionsOf<Extent> {
  Extent output_padding = 0;  // below the stride: of the extents that a convolution takes to x's, how far beyond the least
};
using ConvTransposeOptions = ConvTransposeOptionsOf<Pair>;
using ConvTranspose1dOptions = ConvTransposeOptionsOf<i64>;

/// PyTorch's conv_transpose2d, the input gradient of a convolution: x[N, C, H, W], w[C, O / groups, kh, kw], bias[O] or no value ->
/// [N, O, Ho, Wo] with Ho = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1, Wo alike.
Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias, const ConvTransposeOptions& options = {});
/// x[N, C, L], w[C, O / groups, k], bias[O] or no value -> [N, O, Lo].
Variable conv_transpose1d(const Variable& x, const Variable& w, const Variable& bias, const ConvTranspose1dOptions& options = {});

}  // namespace spillway::ops
