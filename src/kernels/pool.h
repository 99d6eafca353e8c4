// Max and average pooling of images x[N, C, H, W] -> y[N, C, Ho, Wo]: f32, f64, bf16 and f16 (means summed in f32, rounded once),
// contiguous. An element of a gradient is the sum over the windows that cover it, in ascending order, rounded once; no two tasks write to
// one plane.
#pragma once
#include "kernels/pool_axes.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Writes the largest element of each window (NaN if there is one) and, in `index` (int32, y's shape), its position in the plane: the first
/// of several equal ones.
void max_pool(const Tensor& x, const Window& window, const Tensor& y, const Tensor& index);
void max_pool_gradient(const Tensor& dy, const Tensor& index, const Window& window, const Tensor& dx);

/// Writes the mean of each window. Elements in the padding count as zero if `counts_padding` (PyTorch's count_include_pad), else not at
/// all.
void avg_pool(const Tensor& x, const Window& window, bool counts_padding, const Tensor& y);
void avg_pool_gradient(const Tensor& dy, const Window& window, bool counts_padding, const Tensor& dx);

/// Pool over windows that divide the image as evenly as possible: rows floor(i H / Ho) to ceil((i + 1) H / Ho), and columns likewise.
void adaptive_max_pool(const Tensor& x, const Tensor& y, const Tensor& index);
void adaptive_max_pool_gradient(const Tensor& dy, const Tensor& index, const Tensor& dx);
void adaptive_avg_pool(const Tensor& x, const Tensor& y);
void adaptive_avg_pool_gradient(const Tensor& dy, const Tensor& dx);

namespace cuda {
void max_pool(const Tensor& x, const PoolAxes& axes, const Tensor& y, const Tensor& index);
void max_pool_gradient(const Tensor& dy, const Tensor& index, const PoolAxes& axes, const Tensor& dx);
void avg_pool(const Tensor& x, const PoolAxes& axes, const Tensor& y);
void avg_pool_gradient(const Tensor& dy, const PoolAxes& axes, const Tensor& dx);
}  // namespace cuda

}  // namespace spillway::kernels
