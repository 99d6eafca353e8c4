// One- and two-dimensional convolution (cross-correlation, as in PyTorch) for f32, f64, bf16 and f16 (summed in f32, rounded once) and
// inputs of any strides. Legend: N images, C and O input and output channels, H and W rows and columns, L elements of a one-dimensional
// row. Filters have at most 64 rows and columns. Throws an Error(bug) that lists the shapes and dtypes if they do not match.
#pragma once
#include "autograd/tape.h"
#include "kernels/images/window.h"

namespace spillway::ops {

using autograd::Variable;
using kernels::Pair;

/// Options of a convolution. `Extent` is Pair (rows, columns) for images or i64 for one-dimensional rows.
template <class Extent>
struct ConvOptionsOf {
  Extent stride = 1, padding = 0, dilation = 1;
  i64 groups = 1;
};
using ConvOptions = ConvOptionsOf<Pair>;
using Conv1dOptions = ConvOptionsOf<i64>;

/// Computes PyTorch's conv2d of x[N, C, H, W], w[O, C / groups, kh, kw] and
/// bias[O]. A bias without a value is left out. Returns [N, O, Ho, Wo].
Variable conv2d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options = {});
/// Computes PyTorch's conv1d of x[N, C, L], w[O, C / groups, k] and bias[O]. A bias without a value is left out. Returns [N, O, Lo].
Variable conv1d(const Variable& x, const Variable& w, const Variable& bias, const Conv1dOptions& options = {});

template <class Extent>
struct ConvTransposeOptionsOf : ConvOptionsOf<Extent> {
  Extent output_padding = 0;  // the elements added to the output's smallest possible extent; below the stride
};
using ConvTransposeOptions = ConvTransposeOptionsOf<Pair>;
using ConvTranspose1dOptions = ConvTransposeOptionsOf<i64>;

/// Computes PyTorch's conv_transpose2d, the input gradient of a convolution, of x[N, C, H, W], w[C,
/// O / groups, kh, kw] and bias[O]. A bias without a value is left out. Returns [N, O, Ho, Wo] with
/// Ho = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1, and Wo likewise.
Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias, const ConvTransposeOptions& options = {});
/// Computes PyTorch's conv_transpose1d of x[N, C, L], w[C, O / groups, k]
/// and bias[O]. A bias without a value is left out. Returns [N, O, Lo].
Variable conv_transpose1d(const Variable& x, const Variable& w, const Variable& bias, const ConvTranspose1dOptions& options = {});

}  // namespace spillway::ops
