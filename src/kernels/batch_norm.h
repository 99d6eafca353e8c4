// Batch and group normalisation of images x[N, C, ...]: f32, f64, bf16 and f16, contiguous. x, gamma, beta, y, dy and dx have one dtype;
// statistics, running statistics, dgamma and dbeta have wide_dtype of it. One task computes a whole channel, or one image's group of
// channels; it adds fp32 sums of parts of the planes in fp64, in an order that depends on the shape alone. Ioffe and Szegedy,
// arXiv:1502.03167; Wu and He, arXiv:1803.08494; PyTorch's formulas.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Writes statistics[C, 2], the mean and 1/sqrt(biased variance + eps) of the batch, and, if they are defined, mean[C] and the unbiased
/// variance[C]. Throws Error(usage) if a channel has only one element.
void batch_statistics(const Tensor& x, double eps, const Tensor& statistics, const Tensor& mean = {}, const Tensor& variance = {});
/// Writes the same two numbers per channel from the running statistics.
void running_statistics(const Tensor& running_mean, const Tensor& running_variance, double eps, const Tensor& statistics);

/// Computes y = (x - mean) (factor gamma) + beta, where `factor` is 1/sqrt(variance + eps) from the statistics.
void batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& statistics, const Tensor& y);
/// Writes the gradients; undefined ones are not wanted. `of_batch`: the statistics depend on x, as in training.
void batch_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, bool of_batch, const Tensor& dx,
                         const Tensor& dgamma, const Tensor& dbeta);

/// Computes y = (x - mean) (factor gamma) + beta with gamma[C] and beta[C] and the statistics[N G, 2] of each of an image's G groups of
/// adjacent channels. batch_statistics() computes these from x seen as [1, N G, ...].
void group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& statistics, const Tensor& y);
/// Writes the gradients; undefined ones are not wanted. dgamma and dbeta are separate for each image: [N, C].
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
