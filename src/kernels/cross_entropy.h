// Cross entropy of rows of logits[N, V] (f32, f64, bf16 or f16, each row contiguous) against int32 targets; a negative target is not
// counted. A row is kept as two numbers, its largest logit and the sum of exp(logit - largest): their joint log-sum-exp would lose the
// digits that large logits need. Logits may come in parts, some columns of all rows at a time (Milakov and Gimelshein, arXiv:1805.02867).
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// How the logits of a head are cut where they are never all there: pieces of so many rows and columns, the last ones smaller. On a CPU
/// whole rows, as many as `piece_bytes` hold of logits of `wide`. On a GPU some columns of all rows, so that a piece's part of the weight's
/// gradient is one product over all rows: as many as the bytes hold, in 256s and no fewer than 4096; what is beyond a multiple of 64 is a
/// piece by itself. A function of these arguments and the kind of device alone.
struct LogitsCut {
  i64 rows, columns;
};
LogitsCut logits_cut(i64 rows, i64 vocabulary, DType wide, i64 piece_bytes);
/// Elements from one row of so many logits to the next: on a GPU a multiple of 64, at which its products and loads are fast.
i64 logits_pitch(i64 columns);

/// logits: the columns [first, first + n) of rows of `vocabulary`; parts come in ascending order and end at `vocabulary`.
/// statistics[N, 2] = (largest, sum) so far and, after the last part, loss[N] = log(sum) - (logit of the target - largest), 0 where it is
/// not counted; in wide_dtype of the logits. Throws Error(data) on a target >= vocabulary; on a GPU, which is not waited for, the row's
/// loss and gradient are NaN.
void cross_entropy_part(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets, const Tensor& statistics,
                        const Tensor& loss);
inline void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& statistics, const Tensor& loss) {
  cross_entropy_part(logits, 0, logits.size(1), targets, statistics, loss);
}

/// Of such a part: dlogits = (softmax(logits) - onehot(target)) * factor (rounded to the statistics' type), zero where the target is not
/// counted; rows contiguous. Of the logits' type, or bf16 or f16 of f32. dlogits may be logits, or their memory: each narrow row at the
/// start of its f32 row. It may have more columns, which become zero. With `cap` above 0 the logits are softcap(x, cap), and what is
/// written is the gradient of x.
void cross_entropy_part_gradient(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets, const Tensor& statistics,
                                 double factor, const Tensor& dlogits, double cap = 0);
inline void cross_entropy_gradient(const Tensor& logits, const Tensor& targets, const Tensor& statistics, double factor,
                                   const Tensor& dlogits) {
  cross_entropy_part_gradient(logits, 0, logits.size(1), targets, statistics, factor, dlogits);
}

/// total (one f64) = factor times the fp64 sum of x in order.
void sum_in_order(const Tensor& x, double factor, const Tensor& total);

/// How many targets are counted. Throws Error(data) when none is. A GPU is waited for.
i64 counted_targets(const Tensor& targets);

namespace cuda {
decltype(kernels::cross_entropy_part) cross_entropy_part;
decltype(kernels::cross_entropy_part_gradient) cross_entropy_part_gradient;
decltype(kernels::sum_in_order) sum_in_order;
}  // namespace cuda

}  // namespace spillway::kernels
