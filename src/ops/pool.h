// Pooling of images x[N, C, H, W] and of rows x[N, C, L], f32, f64, bf16 and f16, of any strides. Means are summed in wide_dtype and
// rounded once. Throws Error(bug), with the shapes that came, on a window that does not fit.
#pragma once
#include "autograd/tape.h"
#include "kernels/window.h"

namespace spillway::ops {

using autograd::Variable;
using kernels::Pair;

/// The largest of each window; its gradient goes to the first of equals. Padding (at most half the kernel) is never the largest. Under
/// `ceil_mode` a last window that reaches beyond the padding counts too, if it begins before the image ends.
Variable max_pool2d(const Variable& x, Pair kernel, Pair stride, Pair padding = 0, bool ceil_mode = false);
Variable max_pool1d(const Variable& x, i64 kernel, i64 stride, i64 padding = 0, bool ceil_mode = false);
/// The mean of each window, padding (at most half the kernel) counted as zeros, or not at all; what lies beyond it never counts.
Variable avg_pool2d(const Variable& x, Pair kernel, Pair stride, Pair padding = 0, bool count_include_pad = true, bool ceil_mode = false);
Variable avg_pool1d(const Variable& x, i64 kernel, i64 stride, i64 padding = 0, bool count_include_pad = true, bool ceil_mode = false);
/// To [N, C, size.h, size.w], whatever the extent: rows floor(i H / size.h) to ceil((i + 1) H / size.h), columns alike.
Variable adaptive_max_pool2d(const Variable& x, Pair size);
Variable adaptive_avg_pool2d(const Variable& x, Pair size);

}  // namespace spillway::ops
