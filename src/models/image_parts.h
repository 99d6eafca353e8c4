// Parts shared by image models: convolutions that track the height and width of their images, and the loss against the micro-batch's
// classes. Shape letters: N = images, K = classes.
#pragma once
#include <cmath>

#include "kernels/accumulate.h"
#include "nn/image_layers.h"
#include "ops/losses/loss.h"

namespace spillway::models {

struct Extent {
  i64 h = 0, w = 0;
  /// Returns the height and width that a convolution or pooling gives for an image of this height and width.
  Extent behind(i64 kernel, i64 stride, i64 padding) const {
    return {(h + 2 * padding - kernel) / stride + 1, (w + 2 * padding - kernel) / stride + 1};
  }
};

struct ConvShape {
  i64 outputs = 0, kernel = 1, stride = 1, padding = 0;
};

/// Returns the standard deviation sqrt(2 / (outputs kernel^2)) of initial weights (He et al., arXiv:1502.01852, with the number of outputs
/// instead of inputs), as in torchvision.
inline double std_by_outputs(const ConvShape& shape) {
  return std::sqrt(2.0 / static_cast<double>(shape.outputs * shape.kernel * shape.kernel));
}

/// Returns a convolution for images of the size `image` and updates `image` to the size of its output.
inline nn::Conv2d convolution(const std::string& name, const ConvShape& shape, i64 inputs, Extent& image, DType dtype,
                              nn::Conv2d::Options options) {
  image = image.behind(shape.kernel, shape.stride, shape.padding);
  options.stride = shape.stride;
  options.padding = shape.padding;
  options.positions = image.h * image.w;
  return {name, inputs, shape.outputs, shape.kernel, dtype, options};
}

/// Returns the sum of the images' losses. The backward pass computes the gradient of loss_factor times this
/// sum. In Mode::generate the result is the logits [N, K] instead, as f32 if the model's type is bf16 or f16. With
/// Context::all_logits the result is the recorded logits.
inline nn::Variable image_loss(const nn::Variable& logits_NK, const nn::Context& context) {
  if (context.all_logits) return logits_NK;
  if (context.mode != nn::Mode::generate) return ops::cross_entropy_sum(logits_NK, context.batch->targets_BT, context.loss_factor);
  if (!is_half(logits_NK.dtype())) return logits_NK;
  const Tensor wide = empty(logits_NK.shape(), DType::f32, "logits");
  kernels::copy(logits_NK.value, wide);
  return wide;
}

}  // namespace spillway::models
