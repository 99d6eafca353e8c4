// Cross entropy of rows of logits[N, V] against int32 targets. Logits are f32, f64, bf16 or f16, and each row is contiguous.
// Rows with a negative target do not contribute to the loss. Two numbers are kept for each row: its largest logit, and the
// sum of exp(logit - largest). A single log-sum-exp would not do, because it would lose the digits that large logits need.
// Logits may come in parts, some columns of all rows at a time (Milakov and Gimelshein, arXiv:1805.02867).
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Cuts a head's logits into pieces if they do not fit in memory all at once. The members are the rows and columns of a piece; the last
/// piece may have fewer. On a CPU a piece consists of whole rows, as many as fit into `piece_bytes` with logits of type `wide`. On a GPU a
/// piece consists of some columns of all rows, so that its part of the weight's gradient is one product over all rows. Such a piece has as
/// many columns as fit, in multiples of 256, but at least 4096; columns beyond a multiple of 64 form a separate piece. The cut depends only
/// on the arguments and the kind of device.
struct LogitsCut {
  i64 rows, columns;
};
LogitsCut logits_cut(i64 rows, i64 vocabulary, DType wide, i64 piece_bytes);
/// Returns the distance in elements between rows of `columns` logits. On a GPU
/// the distance is a multiple of 64, which makes matrix products and loads fast.
i64 logits_pitch(i64 columns);

/// Processes one part of the logits: columns [first, first + n) of rows that have `vocabulary` columns in all. Parts must come in ascending
/// order, and the last one ends at `vocabulary`. statistics[N, 2] holds (largest, sum) of each row so far. After the last part, loss[N] =
/// log(sum) - (logit of the target - largest), or 0 if the target is negative. statistics and loss are in wide_dtype of the logits. Throws
/// Error(data) if a target is >= vocabulary. On a GPU, where the call does not wait, the loss and gradient of such a row become
/// NaN, and the next wait throws.
void cross_entropy_part(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets, const Tensor& statistics,
                        const Tensor& loss);
inline void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& statistics, const Tensor& loss) {
  cross_entropy_part(logits, 0, logits.size(1), targets, statistics, loss);
}

/// Computes the gradient of one part of the logits: dlogits = (softmax(logits) - onehot(target)) * factor, or zero in rows
/// with a negative target. The factor is rounded to the dtype of the statistics. Rows of dlogits are contiguous. dlogits
/// has the logits' dtype, or may be bf16 or f16 if the logits are f32. dlogits may share memory with the logits; narrow
/// rows then lie at the start of their f32 rows. If dlogits has more columns than the logits, the extra columns become
/// zero. If `cap` is above 0, the logits were computed as softcap(x, cap), and the gradient of x is written instead.
void cross_entropy_part_gradient(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets, const Tensor& statistics,
                                 double factor, const Tensor& dlogits, double cap = 0);
inline void cross_entropy_gradient(const Tensor& logits, const Tensor& targets, const Tensor& statistics, double factor,
                                   const Tensor& dlogits) {
  cross_entropy_part_gradient(logits, 0, logits.size(1), targets, statistics, factor, dlogits);
}

/// Computes the fp64 sum of x, element by element in order, and writes it times `factor` to `total`, which is one f64.
void sum_in_order(const Tensor& x, double factor, const Tensor& total);

/// Returns how many targets contribute to the loss, that is, are at least 0. Waits for the GPU. Throws Error(data) if there are none.
i64 counted_targets(const Tensor& targets);

namespace cuda {
decltype(kernels::cross_entropy_part) cross_entropy_part;
decltype(kernels::cross_entropy_part_gradient) cross_entropy_part_gradient;
decltype(kernels::sum_in_order) sum_in_order;
}  // namespace cuda

}  // namespace spillway::kernels
