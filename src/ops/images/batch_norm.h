// Normalisation of images per channel or group of channels, by PyTorch's formulas, for f32, f64, bf16 and f16 (statistics in f32) and
// inputs of any strides. Forward saves x and two statistics per channel or group. For bf16 and f16, gamma and beta must be parameters of
// the tape or constants, because their gradients are f32. Throws an Error(bug) that lists the shapes and dtypes if they do not match.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

struct BatchNormOptions {
  double eps = 1e-5;
  bool training = true;  // true: normalise by this batch's statistics; false: normalise by the running statistics
};
/// Returns (x - mean) / sqrt(variance + eps) * gamma + beta per channel, for x[N, C, ...], gamma[C] and beta[C] (Ioffe and Szegedy,
/// arXiv:1502.03167). Training does not read running_mean[C] and running_variance[C]. Instead, backward gives them "gradients": this
/// batch's mean and unbiased variance, with which the optimizer step updates them. (The batch itself is normalised by its biased variance.)
/// Outside training the running statistics get no gradient.
Variable batch_norm2d(const Variable& x, const Variable& gamma, const Variable& beta, const Variable& running_mean,
                      const Variable& running_variance, const BatchNormOptions& options);

/// Divides the channels of each image into `groups` groups of adjacent channels, and normalises each group by its own mean and biased
/// variance (Wu and He, arXiv:1803.08494). A group must have more than one element.
Variable group_norm(const Variable& x, i64 groups, const Variable& gamma, const Variable& beta, double eps = 1e-5);
/// Normalises each channel of each image by its own mean and variance (Ulyanov et al., arXiv:1607.08022).
Variable instance_norm(const Variable& x, const Variable& gamma, const Variable& beta, double eps = 1e-5);

}  // namespace spillway::ops
