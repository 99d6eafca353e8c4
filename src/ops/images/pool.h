// Max and average pooling of images x[N, C, H, W] and of one-dimensional rows x[N, C, L], for f32, f64, bf16 and f16 of any
// strides. Means are summed in wide_dtype and rounded once. Throws an Error(bug) that lists the shapes if a window does not fit.
#pragma once
#include "autograd/tape.h"
#include "kernels/images/window.h"

namespace spillway::ops {

using autograd::Variable;
using kernels::Pair;

/// max_pool2d() and max_pool1d() return the largest element of each window; the gradient goes to the first of several equal elements.
/// Padding (at most half the kernel) is never the largest. With `ceil_mode` a last window that reaches beyond the padding is included if
/// it begins before the image ends.
Variable max_pool2d(const Variable& x, Pair kernel, Pair stride, Pair padding = 0, bool ceil_mode = false);
Variable max_pool1d(const Variable& x, i64 kernel, i64 stride, i64 padding = 0, bool ceil_mode = false);
/// avg_pool2d() and avg_pool1d() return the mean of each window. With `count_include_pad`, padding (at most half the kernel) counts as
/// zeros; without, it does not count. Elements beyond the padding never count.
Variable avg_pool2d(const Variable& x, Pair kernel, Pair stride, Pair padding = 0, bool count_include_pad = true, bool ceil_mode = false);
Variable avg_pool1d(const Variable& x, i64 kernel, i64 stride, i64 padding = 0, bool count_include_pad = true, bool ceil_mode = false);
/// adaptive_max_pool2d() and adaptive_avg_pool2d() pool to [N, C, size.h, size.w] whatever the input's extents: output row i covers rows
/// floor(i H / size.h) to ceil((i + 1) H / size.h), and columns likewise.
Variable adaptive_max_pool2d(const Variable& x, Pair size);
Variable adaptive_avg_pool2d(const Variable& x, Pair size);

}  // namespace spillway::ops
