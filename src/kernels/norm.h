// Layer and RMS normalisation over the last axis; x seen as [rows, C], f32, f64, bf16 or f16, contiguous; x, gamma, beta, y, dy and dx of
// one type, statistics, dgamma and dbeta in wide_dtype of it. Parameter gradients are summed over rows in at most kNormChunks chunks of
// equal size, then over chunks in order: a partition by shape alone.
#pragma once
#include <algorithm>

#include "tensor/tensor.h"

namespace spillway::kernels {

inline constexpr i64 kNormChunks = 16;
/// Rows of a chunk, the last may have fewer; chunks; and how far apart the sums of two chunks lie: whole vectors.
inline i64 norm_chunk_rows(i64 rows) { return std::max<i64>(1, ceil_div(rows, kNormChunks)); }
inline i64 norm_chunks(i64 rows) { return ceil_div(rows, norm_chunk_rows(rows)); }
inline i64 norm_sums_stride(i64 columns) { return round_up(columns, 16); }

/// statistics[rows, 2]: mean and 1/sqrt(variance + eps); beta undefined means RMS: mean 0 and 1/sqrt(mean(x^2) + eps).
void norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, const Tensor& y, const Tensor& statistics);

/// Bytes norm_gradient wants.
i64 norm_gradient_workspace_bytes(i64 rows, i64 columns, DType dtype);
/// Undefined gradients are not wanted; dgamma and dbeta are written whole. `centred`: layer norm, else RMS (no dbeta). gamma is read for dx
/// alone.
void norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, bool centred, const Tensor& dx,
                   const Tensor& dgamma, const Tensor& dbeta, const Tensor& workspace);

namespace cuda {
decltype(kernels::norm) norm;
decltype(kernels::norm_gradient) norm_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
