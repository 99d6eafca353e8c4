// Batch and group normalisation of images x[N, C, ...], f32, f64, bf16 and f16, contiguous; x, gamma, beta, y, dy and dx of one type,
// statistics, running statistics, dgamma and dbeta in wide_dtype of it. A channel, or an image's group of channels,
// is one task, its sums fp64 over fp32 sums of parts of its planes: an order by shape alone. Ioffe and Szegedy, arXiv:1502.03167; Wu and
// He, arXiv:1803.08494; PyTorch's formulas.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// statistics[C, 2]: mean and 1/sqrt(biased variance + eps) of the batch; if defined, mean[C] and variance[C] too, this one unbiased.
/// Throws Error(usage) on one element a channel.
void batch_statistics(const Tensor& x, double eps, const Tensor& statistics, const Tensor& mean = {}, const Tensor& variance = {});
/// The same two numbers from the running ones.
void running_statistics(const Tensor& running_mean, const Tensor& running_variance, double eps, const Tensor& statistics);

/// y = (x - mean) (factor gamma) + beta.
void batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& statistics, const Tensor& y);
/// Undefined gradients are not wanted. `of_batch`: the statistics depend on x, as in training.
void batch_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, bool of_batch, const Tensor& dx,
                         const Tensor& dgamma, const Tensor& dbeta);

/// statistics[N G, 2]: of each of an image's G groups of neighbouring channels, which are those of batch_statistics() of x seen as
/// [1, N G, ...]. y = (x - mean) (factor gamma) + beta with gamma[C] and beta[C].
void group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& statistics, const Tensor& y);
/// Of gamma and beta each image's own: [N, C]. Undefined gradients are not wanted.
void group_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, const Tensor& dx,
                         const Tensor& dgamma, const Tensor& dbeta);

namespace cuda {
decltype(kernels::batch_statistics) batch_statistics;
decltype(kernels::running_statistics) running_statistics;
decltype(kernels::batch_norm) batch_norm;
decltype(kernels::batch_norm_gradient) batch_norm_gradient;
decltype(kernels::group_norm) group_norm;
decltype(kernels::group_norm_gradient) group_norm_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
