// Losses of rows against classes, with weights, smoothing and targets that are not counted: the general forms beside ops/loss.h, whose
// cross_entropy_* and fused head are what language models train with. f32, f64, bf16 and f16, inputs of any strides, natural logarithms.
// Legend: V = classes, the last axis.
#pragma once
#include "autograd/tape.h"
#include "ops/losses/reduction.h"

namespace spillway::ops {

using autograd::Variable;

struct ClassLossOptions {
  Reduction reduction = Reduction::mean;
  Tensor weights_V;            // in wide_dtype of the input; undefined: all 1
  i32 ignored = -100;          // besides every negative target
  double label_smoothing = 0;  // in [0, 1]: so much of each target is shared out evenly (Szegedy et al., arXiv:1512.00567)
};

/// Of logits[..., V] against targets[...] (int32). Losses are in wide_dtype; reduced ones one f64, summed in fp64 in row order. The mean is
/// over the weights of counted targets: there must be some (Error(data) otherwise; a GPU is waited for). Throws Error(data) on a target >=
/// V.
Variable cross_entropy(const Variable& logits, const Tensor& targets, const ClassLossOptions& options = {});
/// The same of log-probabilities, without smoothing.
Variable nll_loss(const Variable& log_probabilities, const Tensor& targets, const ClassLossOptions& options = {});

}  // namespace spillway::ops
