// Classification losses with class weights, label smoothing and ignored targets, for f32, f64, bf16 and
// f16 inputs of any strides. Logarithms are natural. Language models use the simpler cross_entropy_*
// functions and the fused head of ops/losses/loss.h instead. Legend: V = classes, the last axis.
#pragma once
#include "autograd/tape.h"
#include "ops/losses/reduction.h"

namespace spillway::ops {

using autograd::Variable;

struct ClassLossOptions {
  Reduction reduction = Reduction::mean;
  Tensor weights_V;            // the weight of each class, in wide_dtype of the input; undefined means all 1
  i32 ignored = -100;          // targets of this value are ignored, and so are all negative targets
  double label_smoothing = 0;  // the fraction of each target spread over all classes, in [0, 1] (Szegedy et al., arXiv:1512.00567)
};

/// Returns the cross entropy of logits[..., V] against int32 targets[...]. Losses that are not reduced are in wide_dtype;
/// reduced ones are one f64, summed in fp64 in row order. The mean divides by the sum of the weights of the targets that are
/// not ignored. Computing this sum waits for the GPU; a sum of 0 throws Error(data). Throws Error(data) on a target >= V.
Variable cross_entropy(const Variable& logits, const Tensor& targets, const ClassLossOptions& options = {});
/// Returns the negative log-likelihood: the loss of cross_entropy(), but of log-probabilities and without label smoothing.
Variable nll_loss(const Variable& log_probabilities, const Tensor& targets, const ClassLossOptions& options = {});

}  // namespace spillway::ops
