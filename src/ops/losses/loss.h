// Cross entropy for language models, with natural logarithms. Tokens with a negative target do not contribute. Each token's loss is
// computed in fp32 (fp64 for f64) from a log-sum-exp; losses are summed in fp64 in row order. Legend: N = tokens (the rows of the logits),
// V = vocabulary, C = channels.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns the sum of the token losses of logits[N, V] (or [B, T, V]) against N int32 targets, as an f64 scalar. Its gradient is
/// gradient_factor (rounded to the type of the computation) times the gradient of the sum, times the incoming gradient. Throws Error(data)
/// on a target >= V.
Variable cross_entropy_sum(const Variable& logits, const Tensor& targets_N, double gradient_factor);

/// Returns the mean loss over the tokens whose target is not negative, as an f64 scalar. Throws Error(data) if there is no such token.
Variable cross_entropy_mean(const Variable& logits, const Tensor& targets_N);

/// Limits the memory of the logits. piece_bytes decides how the logits are cut into pieces, which changes the rounding of the results.
/// kept_bytes only decides whether the logits stay in memory until backward, which changes no result.
struct LogitsMemory {
  i64 piece_bytes = 256 * kMiB;  // the upper limit for the bytes of logits computed at a time (kernels::logits_cut)
  i64 kept_bytes = piece_bytes;  // logits of at most this size, or of one piece, are kept for backward
};

/// Returns the bytes of logits that backward of linear_cross_entropy() computes again, for an x of this dtype; 0 if the logits are kept.
/// The result depends on the device of the current stream, for which the logits are cut into pieces.
i64 logits_again_bytes(i64 rows, i64 vocabulary, DType dtype, const LogitsMemory& memory = {});

/// Returns cross_entropy_sum(x w^T) for x[N, C] (or [B, T, C]) and w[V, C] without ever holding more logits than `memory` allows. The
/// logits are cut into pieces: whole rows on a CPU, columns on a GPU. Kept logits are overwritten with their gradient. Logits that are not
/// kept are recomputed in backward, piece by piece. The weight's gradient is summed over pieces of rows and the input's over pieces of
/// columns, in ascending order and in x's wide_dtype. For bf16 the logits are f32, their gradient bf16 and the weight's gradient f32. With
/// `softcap` above 0 the loss is that of softcap * tanh(logits / softcap).
Variable linear_cross_entropy(const Variable& x, const Variable& w, const Tensor& targets_N, double gradient_factor,
                              const LogitsMemory& memory = {}, double softcap = 0);

}  // namespace spillway::ops
