// Convolution of images, f32, f64, bf16 and f16 (summed in f32), of any strides. Legend: N images, C and O channels in and out, H and W
// rows and columns.
#pragma once
#include "autograd/tape.h"
#include "kernels/window.h"

namespace spillway::ops {

using autograd::Variable;
using kernels::Pair;

struct ConvOptions {
  Pair stride = 1, padding = 0, dilation = 1;
  i64 groups = 1;
};

/// PyTorch's conv2d: x[N, C, H, W], w[O, C / groups, kh, kw], bias[O] or no value -> [N, O, Ho, Wo]. Throws Error(bug) on views that do
/// not fit.
Variable conv2d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options = {});

}  // namespace spillway::ops
