// Embedding lookup and its gradient. Legend: N = tokens, V = vocabulary, C = channels. f32, f64, bf16 and f16, contiguous.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Copies out[n] = table[ids[n]] for int32 ids. Throws Error(data) on an id outside [0, V); on a GPU, which is not waited for, the row of
/// such an id becomes NaN.
void embedding(const Tensor& ids, const Tensor& table, const Tensor& out);

/// Writes the whole of dtable[V, C], in wide_dtype of dout: the sum of dout's rows for each id, in ascending n, and zeros in row
/// `padding_row` unless that is negative.
void embedding_gradient(const Tensor& ids, const Tensor& dout, i64 padding_row, const Tensor& dtable);

namespace cuda {
decltype(kernels::embedding) embedding;
decltype(kernels::embedding_gradient) embedding_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
