// Convolution of images (cross-correlation, as in PyTorch) and its gradients, for f32, f64, bf16 and f16; bf16 and f16 are summed in f32
// and rounded once. All views are contiguous: x[N, C, H, W], w[O, C / groups, kh, kw], y[N, O, Ho, Wo]. A convolution is computed as a
// matrix product whose inner dimension runs over channels and filter taps, but the whole im2col matrix is never built. The CPU (gemm.h) has
// two ways, and uses the cheaper one for the shape. Either the product reads the matrix's columns in place from padded tiles of the image
// (conv_tile.h), or the task that multiplies the columns gathers them a strip at a time. Taps that lie in the padding at every position are
// skipped. How sums are split and ordered depends on the shape and dtype alone; on a GPU also on cuBLASLt's version and on the GPU
// (matmul.h; fp32 without TF32). Workspace sizes are functions of shape and dtype, for the current stream's device or the GPU that a meta
// device imitates. On a GPU the workspace holds strips of columns of about 32 MiB.
#pragma once
#include "kernels/images/window.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

struct ConvShape {
  i64 images, inputs, outputs, groups;
  Pair extent;  // the number of rows and of columns of x
  Window window;

  Pair positions() const { return positions_of("conv2d", window, extent); }
  i64 inputs_of_group() const { return inputs / groups; }
  i64 outputs_of_group() const { return outputs / groups; }
};

i64 conv2d_workspace_bytes(const ConvShape& shape, DType dtype);
/// Computes y from x and w, plus bias[O] if it is defined.
void conv2d(const ConvShape& shape, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y, const Tensor& workspace);

i64 conv2d_input_gradient_workspace_bytes(const ConvShape& shape, DType dtype);
/// Computes dx from dy and w, plus bias[C] if it is defined. The bias serves
/// transposed convolution, whose forward pass is conv2d_input_gradient().
void conv2d_input_gradient(const ConvShape& shape, const Tensor& dy, const Tensor& w, const Tensor& bias, const Tensor& dx,
                           const Tensor& workspace);

i64 conv2d_weight_gradient_workspace_bytes(const ConvShape& shape, DType dtype);
/// Computes dw from x and dy. dw has x's dtype, or may be f32 for bf16 and f16.
void conv2d_weight_gradient(const ConvShape& shape, const Tensor& x, const Tensor& dy, const Tensor& dw, const Tensor& workspace);

/// Computes the gradient of a bias: to[c] is the sum of x[N, C, ...] over all axes except
/// the channels. Sums are fp64. `to` has x's dtype, or may be f32 for bf16 and f16.
void sum_channels(const Tensor& x, const Tensor& to);

namespace cuda {
decltype(kernels::conv2d) conv2d;
decltype(kernels::conv2d_input_gradient) conv2d_input_gradient;
decltype(kernels::conv2d_weight_gradient) conv2d_weight_gradient;
decltype(kernels::sum_channels) sum_channels;
}  // namespace cuda

}  // namespace spillway::kernels
