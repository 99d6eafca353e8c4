// Layer and RMS normalisation over the last axis, for contiguous f32, f64, bf16 or f16. x is treated as [rows, C]. x, gamma, beta, y, dy
// and dx have one dtype; statistics, dgamma and dbeta are in wide_dtype of it. For dgamma and dbeta the rows are divided into equal chunks.
// Rows are summed within each chunk, and then the chunks are added in a fixed order. The chunks depend only on the shape and the kind of
// device.
#pragma once
#include <algorithm>

#include "tensor/tensor.h"

namespace spillway::kernels {

/// Divides the rows into chunks for dgamma and dbeta. The three functions return the rows of a chunk (the last may have fewer), the
/// number of chunks (more on a GPU), and the distance in elements between the sums of two chunks, which is a whole number of vectors.
inline i64 norm_chunk_rows(i64 rows) {
  return Stream::current().device.works_as_cuda() ? std::max<i64>(32, ceil_div(rows, 128)) : std::max<i64>(1, ceil_div(rows, 16));
}
inline i64 norm_chunks(i64 rows) { return ceil_div(rows, norm_chunk_rows(rows)); }
inline i64 norm_sums_stride(i64 columns) { return round_up(columns, 16); }

/// Normalises each row, multiplies it by gamma + gain_offset (added in wide_dtype) and adds beta. Writes to statistics[rows, 2] the mean
/// and 1/sqrt(variance + eps) of each row. With an undefined beta, computes RMS norm, whose statistics are 0 and 1/sqrt(mean(x^2) + eps).
void norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, const Tensor& y, const Tensor& statistics,
          double gain_offset = 0);

/// Returns the bytes of workspace that norm_gradient() needs.
i64 norm_gradient_workspace_bytes(i64 rows, i64 columns, DType dtype);
/// Writes the gradients of norm(). Gradients that are undefined tensors are not computed. `centred` is true for layer norm and
/// false for RMS norm, which has no dbeta. gamma is read only to compute dx. If `others` is defined, it is added to dx; it has dx's
/// shape and dtype but shares no memory with dx. A GPU adds before it rounds dx; a CPU rounds dx and then adds, as add() does.
void norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, bool centred, const Tensor& others,
                   const Tensor& dx, const Tensor& dgamma, const Tensor& dbeta, const Tensor& workspace, double gain_offset = 0);

namespace cuda {
decltype(kernels::norm) norm;
decltype(kernels::norm_gradient) norm_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
