// How image models end: logits against the micro-batch's classes. Legend: N = images, K = classes.
#pragma once
#include "kernels/accumulate.h"
#include "nn/module.h"
#include "ops/loss.h"

namespace spillway::models {

/// The sum of the images' losses, whose gradient is that of loss_factor times it; in Mode::generate the logits [N, K], in wide_dtype.
inline nn::Variable image_loss(const nn::Variable& logits_NK, const nn::Context& context) {
  if (context.mode != nn::Mode::generate) return ops::cross_entropy_sum(logits_NK, context.batch->targets_BT, context.loss_factor);
  if (!is_half(logits_NK.dtype())) return logits_NK;
  const Tensor wide = empty(logits_NK.shape(), DType::f32, "logits");
  kernels::copy(logits_NK.value, wide);
  return wide;
}

}  // namespace spillway::models
