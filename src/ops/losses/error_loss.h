// Losses of x beside y or a target, element by element: f32, f64, bf16 and f16, inputs of any strides and of one shape and dtype
// (Error(bug) otherwise, with those that came), natural logarithms. The elements' losses have the inputs' type, and so have their sum and
// mean (over all elements), of fp64 partial sums. No gradient flows to a target that is a Tensor.
#pragma once
#include "autograd/tape.h"
#include "ops/losses/reduction.h"

namespace spillway::ops {

using autograd::Variable;

/// (x - y)^2
Variable mse_loss(const Variable& x, const Variable& y, Reduction reduction = Reduction::mean);
/// |x - y|; the gradient of equals is 0.
Variable l1_loss(const Variable& x, const Variable& y, Reduction reduction = Reduction::mean);
/// With d = |x - y|: d^2 / 2 where d <= delta, else delta (d - delta / 2). delta > 0.
Variable huber_loss(const Variable& x, const Variable& y, double delta = 1, Reduction reduction = Reduction::mean);
/// -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)), without overflow.
Variable bce_with_logits_loss(const Variable& logits, const Tensor& target, Reduction reduction = Reduction::mean);
/// t (log(t) - x) of log-probabilities x, 0 where t is; of a target that is a logarithm itself exp(t) (t - x). The divergence of a batch of
/// distributions is the sum over their number: the mean divides by that of all elements.
Variable kl_div(const Variable& log_probabilities, const Tensor& target, bool log_target = false, Reduction reduction = Reduction::mean);

}  // namespace spillway::ops
