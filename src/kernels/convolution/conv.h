// Convolution of images (cross-correlation, as PyTorch's) and its gradients, f32, f64, bf16 and f16 (summed in f32, rounded once), all
// views contiguous: x[N, C, H, W], w[O, C / groups, kh, kw], y[N, O, Ho, Wo]. A matrix product of gemm.h whose inner extent runs over
// channels and taps; never a whole im2col: on the CPU products read the columns in place, in padded tiles of the image (conv_tile.h), or
// they are gathered a strip at a time by the task that multiplies them, whichever costs less for the shape. Taps that lie in the padding at
// every position take no part. Partition and order of every sum depend on the shape and type alone, on a GPU also on what
// cuBLASLt is and on which GPU it runs (matmul.h; fp32 without TF32). Workspaces are functions of shape and type, for where the stream in
// force is or a GPU that it stands for; a GPU's hold strips of columns of some 32 MiB.
#pragma once
#include "kernels/window.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

struct ConvShape {
  i64 images, inputs, outputs, groups;
  Pair extent;  // of x
  Window window;

  Pair positions() const { return positions_of("conv2d", window, extent); }
  i64 inputs_of_group() const { return inputs / groups; }
  i64 outputs_of_group() const { return outputs / groups; }
};

i64 conv2d_workspace_bytes(const ConvShape& shape, DType dtype);
/// bias[O], or undefined.
void conv2d(const ConvShape& shape, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y, const Tensor& workspace);

i64 conv2d_input_gradient_workspace_bytes(const ConvShape& shape, DType dtype);
/// bias[C], which a transposed convolution adds, or undefined.
void conv2d_input_gradient(const ConvShape& shape, const Tensor& dy, const Tensor& w, const Tensor& bias, const Tensor& dx,
                           const Tensor& workspace);

i64 conv2d_weight_gradient_workspace_bytes(const ConvShape& shape, DType dtype);
/// dw: of x's type, or f32 of bf16 and f16.
void conv2d_weight_gradient(const ConvShape& shape, const Tensor& x, const Tensor& dy, const Tensor& dw, const Tensor& workspace);

/// to[C] = sums of x[N, C, ...] over all but its channels, fp64 inside; `to` as dw above. The gradient of a bias.
void sum_channels(const Tensor& x, const Tensor& to);

namespace cuda {
decltype(kernels::conv2d) conv2d;
decltype(kernels::conv2d_input_gradient) conv2d_input_gradient;
decltype(kernels::conv2d_weight_gradient) conv2d_weight_gradient;
decltype(kernels::sum_channels) sum_channels;
}  // namespace cuda

}  // namespace spillway::kernels
