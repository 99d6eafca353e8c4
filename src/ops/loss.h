// Cross entropy with natural logarithms. Negative targets are not counted. Token losses are fp32 (fp64 for f64) log-sum-exps, summed in
// fp64 in row order. Legend: N = rows (tokens), V = vocabulary, C = channels.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Sum of the token losses of logits[N, V] (or [B, T, V]) against targets (int32, N of them): an f64 scalar. Its gradient is that of
/// Wide<T>(gradient_factor) times the sum, times the incoming gradient. Throws Error(data) on a target >= V.
Variable cross_entropy_sum(const Variable& logits, const Tensor& targets_N, double gradient_factor);

/// The mean over counted targets, an f64 scalar; at least one target must count (Error(data) otherwise).
Variable cross_entropy_mean(const Variable& logits, const Tensor& targets_N);

/// How much of the logits lies in memory: what is cut is a matter of piece_bytes, which so changes bits; what is kept changes none.
struct LogitsMemory {
  i64 piece_bytes = 256 * kMiB;  // at a time, where they are more (kernels::logits_cut)
  i64 kept_bytes = piece_bytes;  // between forward and backward, if all are not more, or are one piece
};

/// Bytes of all logits of linear_cross_entropy of x of this type, where its backward would compute them again; 0 where it keeps them. On
/// the device of the stream in force, which decides how they are cut.
i64 logits_again_bytes(i64 rows, i64 vocabulary, DType dtype, const LogitsMemory& memory = {});

/// cross_entropy_sum(x w^T): x[N, C] (or [B, T, C]), w[V, C]. The logits are cut into pieces: on a CPU of whole rows, on a GPU of columns.
/// Kept logits become their gradient in place; others are recomputed in backward, piece by piece. The weight's gradient is summed over
/// pieces of rows and the input's over pieces of columns in ascending order, both as wide as x's wide_dtype. Of bf16 the logits are f32,
/// their gradient bf16, the weight's gradient f32. `softcap` above 0: of softcap * tanh(logits / softcap).
Variable linear_cross_entropy(const Variable& x, const Variable& w, const Tensor& targets_N, double gradient_factor,
                              const LogitsMemory& memory = {}, double softcap = 0);

}  // namespace spillway::ops
