// Layer and RMS normalisation over the last axis, with x seen as [rows, C]: f32, f64, bf16 or f16, contiguous. x, gamma, beta, y, dy and dx
// have one dtype; statistics, dgamma and dbeta have wide_dtype of it. Parameter gradients are summed over rows within equal chunks, then
// over chunks in a fixed order; the chunks depend only on the shape and the kind of device.
#pragma once
#include <algorithm>

#include "tensor/tensor.h"

namespace spillway::kernels {

/// Return how the rows are cut for parameter gradients: rows of a chunk (the last may have fewer), number of chunks (more on a GPU), and
/// elements between the sums of two chunks, a whole number of vectors.
inline i64 norm_chunk_rows(i64 rows) {
  return Stream::current().device.works_as_cuda() ? std::max<i64>(32, ceil_div(rows, 128)) : std::max<i64>(1, ceil_div(rows, 16));
}
inline i64 norm_chunks(i64 rows) { return ceil_div(rows, norm_chunk_rows(rows)); }
inline i64 norm_sums_stride(i64 columns) { return round_up(columns, 16); }

/// Normalises the rows, multiplies them by gamma + gain_offset (added in wide_dtype) and adds beta. statistics[rows, 2] gets the mean and
/// 1/sqrt(variance + eps). An undefined beta selects RMS norm, whose statistics are 0 and 1/sqrt(mean(x^2) + eps).
void norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, const Tensor& y, const Tensor& statistics,
          double gain_offset = 0);

/// Returns the bytes of workspace that norm_gradient needs.
i64 norm_gradient_workspace_bytes(i64 rows, i64 columns, DType dtype);
/// Writes the gradients; undefined ones are not wanted. `centred`: layer norm, else RMS norm (without dbeta). gamma is read only for dx.
/// `others`, if defined, has dx's shape and dtype, shares no memory with it, and is added to it: on a GPU before dx is rounded, on a CPU as
/// add() does.
void norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, bool centred, const Tensor& others,
                   const Tensor& dx, const Tensor& dgamma, const Tensor& dbeta, const Tensor& workspace, double gain_offset = 0);

namespace cuda {
decltype(kernels::norm) norm;
decltype(kernels::norm_gradient) norm_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
