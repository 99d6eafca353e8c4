// Losses between x and y, or x and a target, element by element: f32, f64, bf16 and f16, any strides, natural logarithms. Both inputs must
// have the same shape and dtype; otherwise the functions throw Error(bug), which lists the shapes and dtypes. Losses have the inputs'
// dtype, and so do their sum and mean (over all elements), whose partial sums are fp64. No gradient flows to a target that is a Tensor.
#pragma once
#include "autograd/tape.h"
#include "ops/losses/reduction.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns (x - y)^2.
Variable mse_loss(const Variable& x, const Variable& y, Reduction reduction = Reduction::mean);
/// Returns |x - y|. The gradient of equal elements is 0.
Variable l1_loss(const Variable& x, const Variable& y, Reduction reduction = Reduction::mean);
/// With d = |x - y|, returns d^2 / 2 if d <= delta, else delta (d - delta / 2). delta must be above 0.
Variable huber_loss(const Variable& x, const Variable& y, double delta = 1, Reduction reduction = Reduction::mean);
/// Returns -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)) for logits x and target t, computed without overflow.
Variable bce_with_logits_loss(const Variable& logits, const Tensor& target, Reduction reduction = Reduction::mean);
/// Returns t (log(t) - x) for log-probabilities x and target t, 0 where t is 0. If `log_target` is set, t is itself a logarithm, and the
/// loss is exp(t) (t - x). The mean divides by the number of elements. For the mean divergence of a batch of distributions, divide the sum
/// by the number of distributions instead.
Variable kl_div(const Variable& log_probabilities, const Tensor& target, bool log_target = false, Reduction reduction = Reduction::mean);

}  // namespace spillway::ops
