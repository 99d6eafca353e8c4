// Losses between x and y, or x and a target, element by element, for f32, f64, bf16 and f16 of any strides, with natural logarithms.
// If the shapes or dtypes of the two inputs differ, the functions throw an Error(bug) that lists them. Losses have the inputs' dtype,
// and so do their sum and mean (over all elements), whose partial sums are fp64. No gradient flows to a target that is a Tensor.
#pragma once
#include "autograd/tape.h"
#include "ops/losses/reduction.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns (x - y)^2.
Variable mse_loss(const Variable& x, const Variable& y, Reduction reduction = Reduction::mean);
/// Returns |x - y|. Where x and y are equal, the gradient is 0.
Variable l1_loss(const Variable& x, const Variable& y, Reduction reduction = Reduction::mean);
/// Returns d^2 / 2 if d <= delta, and delta (d - delta / 2) otherwise, with d = |x - y|. delta must be above 0.
Variable huber_loss(const Variable& x, const Variable& y, double delta = 1, Reduction reduction = Reduction::mean);
/// Returns -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)) for logits x and target t, computed without overflow.
Variable bce_with_logits_loss(const Variable& logits, const Tensor& target, Reduction reduction = Reduction::mean);
/// Returns t (log(t) - x) for log-probabilities x and target t, 0 where t is 0. If `log_target` is set,
/// t is itself a logarithm, and the loss is exp(t) (t - x). The mean divides by the number of elements.
/// For the mean divergence of a batch of distributions, divide the sum by the number of distributions.
Variable kl_div(const Variable& log_probabilities, const Tensor& target, bool log_target = false, Reduction reduction = Reduction::mean);

}  // namespace spillway::ops
