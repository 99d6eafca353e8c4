// Rows of a table. Legend: N = tokens, V = vocabulary, C = channels. f32, f64, bf16 and f16, contiguous.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// out[n] = table[ids[n]]; ids int32. Throws Error(data) on an id outside [0, V); on a GPU, whose work is waited for later, the row
/// of such an id becomes NaN.
void embedding(const Tensor& ids, const Tensor& table, const Tensor& out);

/// dtable[V, C] in wide_dtype of dout, written whole: the sum of dout's rows of each id, in ascending n; zeros in row `padding_row`, unless
/// that is negative.
void embedding_gradient(const Tensor& ids, const Tensor& dout, i64 padding_row, const Tensor& dtable);

namespace cuda {
decltype(kernels::embedding) embedding;
decltype(kernels::embedding_gradient) embedding_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
