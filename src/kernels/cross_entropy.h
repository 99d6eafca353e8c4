// Cross entropy of rows of logits[N, V] (f32, f64, bf16 or f16, each row contiguous) against int32 targets. Rows with a negative target do
// not contribute. A row is kept as two numbers, its largest logit and the sum of exp(logit - largest): adding both into one log-sum-exp
// would lose the digits that large logits need. Logits may come in parts, some columns of all rows at a time (Milakov and Gimelshein,
// arXiv:1805.02867).
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// How the logits of a head are cut into pieces when they do not fit in memory at once: rows and columns of a piece, of which the last may
/// have fewer. On a CPU a piece is as many whole rows as fit into `piece_bytes` with logits of type `wide`. On a GPU it is some columns of
/// all rows, so that a piece's part of the weight's gradient is one product over all rows: as many columns as fit, in multiples of 256 and
/// at least 4096; columns beyond a multiple of 64 are a piece of their own. The cut depends only on these arguments and the kind of device.
struct LogitsCut {
  i64 rows, columns;
};
LogitsCut logits_cut(i64 rows, i64 vocabulary, DType wide, i64 piece_bytes);
/// Returns the distance in elements between rows of so many logits. On a GPU it is a multiple of 64, which makes products and loads fast.
i64 logits_pitch(i64 columns);

/// Processes one part of the logits: the columns [first, first + n) of rows of `vocabulary` logits. Parts come in ascending order; the last
/// one ends at `vocabulary`. statistics[N, 2] holds (largest, sum) so far. After the last part loss[N] = log(sum) - (logit of the target -
/// largest), 0 for negative targets. Both are in wide_dtype of the logits. Throws Error(data) on a target >= vocabulary; on a GPU, which is
/// not waited for, that row's loss and gradient become NaN.
void cross_entropy_part(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets, const Tensor& statistics,
                        const Tensor& loss);
inline void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& statistics, const Tensor& loss) {
  cross_entropy_part(logits, 0, logits.size(1), targets, statistics, loss);
}

/// Computes one part's gradient: dlogits = (softmax(logits) - onehot(target)) * factor (rounded to the statistics' dtype), zero for rows
/// with a negative target. Rows are contiguous. dlogits has the logits' dtype, or is bf16 or f16 where the logits are f32. It may share
/// memory with the logits: each narrow row then lies at the start of its f32 row. Extra columns of dlogits become zero. With `cap` above 0
/// the logits are softcap(x, cap), and the gradient of x is written.
void cross_entropy_part_gradient(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets, const Tensor& statistics,
                                 double factor, const Tensor& dlogits, double cap = 0);
inline void cross_entropy_gradient(const Tensor& logits, const Tensor& targets, const Tensor& statistics, double factor,
                                   const Tensor& dlogits) {
  cross_entropy_part_gradient(logits, 0, logits.size(1), targets, statistics, factor, dlogits);
}

/// Computes total (one f64) = factor times the fp64 sum of x in order.
void sum_in_order(const Tensor& x, double factor, const Tensor& total);

/// Returns how many targets are not negative. Waits for the GPU. Throws Error(data) if there are none.
i64 counted_targets(const Tensor& targets);

namespace cuda {
decltype(kernels::cross_entropy_part) cross_entropy_part;
decltype(kernels::cross_entropy_part_gradient) cross_entropy_part_gradient;
decltype(kernels::sum_in_order) sum_in_order;
}  // namespace cuda

}  // namespace spillway::kernels
