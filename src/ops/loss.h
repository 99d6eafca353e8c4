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

/// cross_entropy_sum(x w^T): x[N, C] (or [B, T, C]), w[V, C]. Rows are cut into chunks of at most `chunk_bytes` of logits. With one chunk
/// the logits are saved and become their gradient in place; with several, each chunk's logits are recomputed in backward. The weight's
/// gradient is summed over chunks in ascending order. Of bf16 the logits are f32, their gradient bf16, the weight's gradient f32.
/// chunk_bytes is a parameter for tests: another value means other bits.
inline constexpr i64 kLogitsChunkBytes = 256 * kMiB;
Variable linear_cross_entropy(const Variable& x, const Variable& w, const Tensor& targets_N, double gradient_factor,
                              i64 chunk_bytes = kLogitsChunkBytes);

}  // namespace spillway::ops
