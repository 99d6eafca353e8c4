// Layer and RMS normalisation over the last axis; x seen as [rows, C], f32, f64, bf16 or f16, contiguous; x, gamma, beta, y, dy and dx of
// one type, statistics, dgamma and dbeta in wide_dtype of it. Parameter gradients are summed over rows in chunks of equal size, then over
// chunks in a fixed order: a partition by shape and the kind of device alone.
#pragma once
#include <algorithm>

#include "tensor/tensor.h"

namespace spillway::kernels {

/// Rows of a chunk, the last may have fewer; chunks, of which a GPU needs more; and how far apart the sums of two chunks lie: whole
/// vectors.
inline i64 norm_chunk_rows(i64 rows) {
  return Stream::current().device.works_as_cuda() ? std::max<i64>(32, ceil_div(rows, 128)) : std::max<i64>(1, ceil_div(rows, 16));
}
inline i64 norm_chunks(i64 rows) { return ceil_div(rows, norm_chunk_rows(rows)); }
inline i64 norm_sums_stride(i64 columns) { return round_up(columns, 16); }

/// statistics[rows, 2]: mean and 1/sqrt(variance + eps); beta undefined means RMS: mean 0 and 1/sqrt(mean(x^2) + eps). What is
/// normalised is multiplied by gamma + gain_offset, a sum in wide_dtype.
void norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, const Tensor& y, const Tensor& statistics,
          double gain_offset = 0);

/// Bytes norm_gradient wants.
i64 norm_gradient_workspace_bytes(i64 rows, i64 columns, DType dtype);
/// Undefined gradients are not wanted; dgamma and dbeta are written whole. `centred`: layer norm, else RMS (no dbeta). gamma is read for dx
/// alone. `others`, if defined, like dx and apart from it, is added to it: by a GPU before dx is rounded, by a CPU as add() does.
void norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, bool centred, const Tensor& others,
                   const Tensor& dx, const Tensor& dgamma, const Tensor& dbeta, const Tensor& workspace, double gain_offset = 0);

namespace cuda {
decltype(kernels::norm) norm;
decltype(kernels::norm_gradient) norm_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
