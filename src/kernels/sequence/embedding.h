// Embedding lookup and its gradient, for contiguous f32, f64, bf16 and f16. Legend: N = tokens, V = vocabulary, C = channels.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Copies out[n] = table[ids[n]], with int32 ids. Throws Error(data) if an id is outside [0, V).
/// On a GPU, where the call does not wait, the row of such an id becomes NaN, and the next wait throws.
void embedding(const Tensor& ids, const Tensor& table, const Tensor& out);

/// Overwrites dtable[V, C], which is in wide_dtype of dout. Row `id` of dtable becomes the sum of the rows of dout
/// whose token has this id, in ascending n. Row `padding_row` becomes zero; a negative `padding_row` names no row.
void embedding_gradient(const Tensor& ids, const Tensor& dout, i64 padding_row, const Tensor& dtable);

namespace cuda {
decltype(kernels::embedding) embedding;
decltype(kernels::embedding_gradient) embedding_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
