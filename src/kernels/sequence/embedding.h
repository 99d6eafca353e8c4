// Embedding lookup and its gradient. Legend: N = tokens, V = vocabulary, C = channels. f32, f64, bf16 and f16, contiguous.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Copies out[n] = table[ids[n]], with int32 ids. Throws Error(data) if an id is outside [0, V). A GPU is not waited for; there the row of
/// such an id becomes NaN.
void embedding(const Tensor& ids, const Tensor& table, const Tensor& out);

/// Overwrites dtable[V, C], which is in wide_dtype of dout. The row of an id becomes the sum of those rows of dout that belong to the id,
/// in ascending n. Row `padding_row` becomes zero, unless `padding_row` is negative.
void embedding_gradient(const Tensor& ids, const Tensor& dout, i64 padding_row, const Tensor& dtable);

namespace cuda {
decltype(kernels::embedding) embedding;
decltype(kernels::embedding_gradient) embedding_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
