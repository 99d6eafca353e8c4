// Cross entropy of rows of logits[N, V] (f32, f64, bf16 or f16, contiguous) against int32 targets; a negative target is not counted. A row
// is kept as two numbers, its largest logit and the sum of exp(logit - largest): their joint log-sum-exp would lose the digits that large
// logits need.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// statistics[N, 2] = (largest, sum) and loss[N] = log(sum) - (logit of the target - largest), 0 where it is not counted; in
/// wide_dtype of the logits. Throws Error(data) on a target >= V; on a GPU, which is not waited for, the row's loss and gradient are NaN.
void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& statistics, const Tensor& loss);

/// dlogits = (softmax(logits) - onehot(target)) * factor (rounded to the statistics' type), zero where the target is not counted; rows
/// contiguous. Of the logits' type, or bf16 or f16 of f32. dlogits may be logits, or their memory: each narrow row at the start of its f32
/// row.
void cross_entropy_gradient(const Tensor& logits, const Tensor& targets, const Tensor& statistics, double factor, const Tensor& dlogits);

/// total (one f64) = factor times the fp64 sum of x in order.
void sum_in_order(const Tensor& x, double factor, const Tensor& total);

/// How many targets are counted. Throws Error(data) when none is. A GPU is waited for.
i64 counted_targets(const Tensor& targets);

namespace cuda {
decltype(kernels::cross_entropy) cross_entropy;
decltype(kernels::cross_entropy_gradient) cross_entropy_gradient;
decltype(kernels::sum_in_order) sum_in_order;
}  // namespace cuda

}  // namespace spillway::kernels
