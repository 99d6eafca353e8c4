// Normalisation of images by channels (PyTorch's formulas), f32, f64, bf16 and f16 (statistics in f32), inputs of any strides. Saves x and
// two numbers a channel or group. Of bf16 and f16 gamma and beta must be parameters of the tape, or constants. Throws Error(bug), with the
// shapes and dtypes that came, on those that do not go together.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

struct BatchNormOptions {
  double eps = 1e-5;
  bool training = true;  // by the statistics of this batch; else by the running ones
};
/// (x - mean) / sqrt(variance + eps) * gamma + beta by channel, x[N, C, ...], gamma[C] and beta[C] (Ioffe and Szegedy, arXiv:1502.03167).
/// In training the running mean and variance[C] are not read; what flows back to them as gradients are the statistics of this batch, the
/// unbiased variance, which who steps the parameters has them follow. (The batch itself is normalised by its biased variance.) Else they
/// get nothing.
Variable batch_norm2d(const Variable& x, const Variable& gamma, const Variable& beta, const Variable& running_mean,
                      const Variable& running_variance, const BatchNormOptions& options);

/// The same by the mean and the biased variance of each of an image's `groups` of neighbouring channels (Wu and He, arXiv:1803.08494),
/// which have more than one element each.
Variable group_norm(const Variable& x, i64 groups, const Variable& gamma, const Variable& beta, double eps = 1e-5);
/// By each channel of an image (Ulyanov et al., arXiv:1607.08022).
Variable instance_norm(const Variable& x, const Variable& gamma, const Variable& beta, double eps = 1e-5);

}  // namespace spillway::ops
