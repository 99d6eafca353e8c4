// Cross entropy of rows of logits[N, V] (f32 or f64, contiguous) against int32 targets; a negative target is not counted. Legend: lse = log
// of the sum of exponentials of a row.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// lse[N] and loss[N] = lse - logit of the target (0 where it is not counted), in the dtype of the logits.
/// Throws Error(data) on a target >= V.
void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& lse, const Tensor& loss);

/// dlogits = (exp(logits - lse) - onehot(target)) * T(factor), zero where the target is not counted. dlogits may be logits.
void cross_entropy_gradient(const Tensor& logits, const Tensor& targets, const Tensor& lse, double factor, const Tensor& dlogits);

/// total (one f64) = the fp64 sum of x in order (added to what it holds if `add`).
void sum_in_order(const Tensor& x, const Tensor& total, bool add);

/// How many targets are counted.
i64 counted_targets(const Tensor& targets);

}  // namespace spillway::kernels
