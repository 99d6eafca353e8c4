// Max and average pooling of contiguous images, x[N, C, H, W] -> y[N, C, Ho, Wo], for f32, f64, bf16 and f16; means of bf16 and f16 are
// summed in f32 and rounded once. An element of a gradient is the sum over the windows that cover it, in ascending order, rounded once. No
// two tasks write to the same image plane.
#pragma once
#include "kernels/images/pool_axes.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Writes the largest element of each window to y, or NaN if the window contains a NaN. Writes that element's
/// index within its image plane to `index` (int32, y's shape). Of equal elements the first is taken.
void max_pool(const Tensor& x, const Window& window, const Tensor& y, const Tensor& index);
void max_pool_gradient(const Tensor& dy, const Tensor& index, const Window& window, const Tensor& dx);

/// Writes the mean of each window. If `counts_padding` (PyTorch's count_include_pad), elements in the padding are included as zeros.
/// Otherwise the mean is over the elements inside the image only.
void avg_pool(const Tensor& x, const Window& window, bool counts_padding, const Tensor& y);
void avg_pool_gradient(const Tensor& dy, const Window& window, bool counts_padding, const Tensor& dx);

/// The adaptive pooling functions pool with windows that divide the image as evenly as possible. The window at row i covers the image rows
/// from floor(i H / Ho) up to, but not including, ceil((i + 1) H / Ho); columns likewise.
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
