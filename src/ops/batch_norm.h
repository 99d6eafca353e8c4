// Batch normalisation of images by channel (PyTorch's formulas), f32, f64, bf16 and f16 (statistics in f32). Saves x and two numbers a
// channel.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// (x - mean) / sqrt(variance + eps) * gamma + beta, x[N, C, H, W] (or [N, C]), gamma[C] and beta[C].
struct BatchNormOptions {
  double eps = 1e-5, momentum = 0.1;
  bool training = true;  // by the statistics of this batch; else by the running ones
  bool advance = true;   // in training: the running ones move towards this batch's
};
/// running_mean and running_variance[C] are in wide_dtype of x; they are written where they lie, and are no variables. Of bf16 and f16
/// gamma and beta must be parameters of the tape, or constants.
Variable batch_norm2d(const Variable& x, const Variable& gamma, const Variable& beta, const Tensor& running_mean,
                      const Tensor& running_variance, const BatchNormOptions& options);

}  // namespace spillway::ops
