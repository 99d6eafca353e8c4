// Pooling of images x[N, C, H, W], f32, f64, bf16 and f16, contiguous. Means are summed in wide_dtype and rounded once. Throws Error(bug)
// on a window that does not fit.
#pragma once
#include "autograd/tape.h"
#include "kernels/window.h"

namespace spillway::ops {

using autograd::Variable;
using kernels::Pair;

/// The largest of each window; its gradient goes to the first of equals. Padding (at most half the kernel) is never the largest.
Variable max_pool2d(const Variable& x, Pair kernel, Pair stride, Pair padding = 0);
/// The mean of each window, padding counted as zeros (PyTorch's count_include_pad).
Variable avg_pool2d(const Variable& x, Pair kernel, Pair stride, Pair padding = 0);
/// To [N, C, size.h, size.w], whatever the extent.
Variable adaptive_avg_pool2d(const Variable& x, Pair size);

}  // namespace spillway::ops
