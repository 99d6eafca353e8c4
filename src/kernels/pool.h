// Pooling of images x[N, C, H, W] -> y[N, C, Ho, Wo], f32, f64, bf16 and f16 (means summed in f32, rounded once), contiguous. An element
// of a gradient is the sum over the windows that cover it in ascending order, rounded once; no two tasks write one plane.
#pragma once
#include "kernels/pool_axes.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// The largest of each window (a NaN if it holds one) and in `index` (int32, y's shape) its place in the plane: the first of equals.
void max_pool(const Tensor& x, const Window& window, const Tensor& y, const Tensor& index);
void max_pool_gradient(const Tensor& dy, const Tensor& index, const Window& window, const Tensor& dx);

/// The mean of each window; what lies in the padding counts as zero (PyTorch's count_include_pad), or not at all.
void avg_pool(const Tensor& x, const Window& window, bool counts_padding, const Tensor& y);
void avg_pool_gradient(const Tensor& dy, const Window& window, bool counts_padding, const Tensor& dx);

/// Over windows that cut the image as evenly as can be: rows floor(i H / Ho) to ceil((i + 1) H / Ho), columns alike.
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
