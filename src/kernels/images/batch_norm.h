// Batch and group normalisation of contiguous images x[N, C, ...] in f32, f64, bf16 and f16, with PyTorch's formulas (Ioffe and
// Szegedy, arXiv:1502.03167; Wu and He, arXiv:1803.08494). x, gamma, beta, y, dy and dx have one dtype. Statistics, running
// statistics, dgamma and dbeta are in wide_dtype of it. One task computes a whole channel, or one image's group of channels.
// The task sums parts of the image planes in fp32 and adds these sums in fp64, in an order that depends on the shape alone.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Writes two statistics of each channel to statistics[C, 2]: the mean over the batch, and 1/sqrt(variance + eps) with the biased variance.
/// If `mean` and `variance` are defined, also writes each channel's mean to mean[C] and its unbiased variance to variance[C]. Throws
/// Error(usage) if a channel has only one element.
void batch_statistics(const Tensor& x, double eps, const Tensor& statistics, const Tensor& mean = {}, const Tensor& variance = {});
/// Writes two statistics of each channel: the running mean, and 1/sqrt(running variance + eps).
void running_statistics(const Tensor& running_mean, const Tensor& running_variance, double eps, const Tensor& statistics);

/// Computes y = (x - mean) (factor gamma) + beta for each channel. mean and factor are the channel's two numbers in `statistics`.
void batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& statistics, const Tensor& y);
/// Writes the gradients of batch_norm(). Gradients that are undefined tensors are not computed. `of_batch`
/// says that the statistics were computed from x, as in training, so that the gradient flows through them too.
void batch_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, bool of_batch, const Tensor& dx,
                         const Tensor& dgamma, const Tensor& dbeta);

/// Computes y = (x - mean) (factor gamma) + beta with gamma[C] and beta[C]. mean and factor are
/// the two statistics of a group of adjacent channels of an image, from statistics[N G, 2], where
/// G is the number of groups. batch_statistics() computes them when x is passed as [1, N G, ...].
void group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& statistics, const Tensor& y);
/// Writes the gradients of group_norm(). Gradients that are undefined tensors are not computed. dgamma[N, C] and dbeta[N, C] are separate
/// for each image; the caller adds them up.
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
