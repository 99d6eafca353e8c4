// Copies of tokens to the rows of their experts, and back. A choice is one of a token's K experts. The rows are all choices, sorted by
// expert and then by token, so that each expert's rows are adjacent. Legend: N = tokens, K = experts per token, M = N K rows, E = experts,
// C = channels. All tensors are contiguous. Values are f32, f64, bf16 or f16, weights have wide_dtype of them, and everything else is
// int32.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Sorts the choices experts[N, K], which ascend within each token and lie in [0, E). Writes begins[E + 1], where expert e has the rows
/// [begins[e], begins[e + 1]); choice_of_row[M] = n K + k; and row_of_choice[N, K], which ascends within each token.
void sort_by_expert(const Tensor& experts_NK, const Tensor& begins, const Tensor& choice_of_row, const Tensor& row_of_choice_NK);

/// Copies to[row] = from[the row's token], times the choice's weight unless `weights` is undefined.
void gather_rows(const Tensor& from_NC, const Tensor& choice_of_row, const Tensor& weights_NK, const Tensor& to_MC);

/// Computes to[token] = the sum of the token's rows, each times its weight unless `weights` is undefined. Rows are added in ascending order
/// of experts, and the sum is rounded once.
void sum_rows(const Tensor& from_MC, const Tensor& row_of_choice_NK, const Tensor& weights_NK, const Tensor& to_NC);

/// Computes products[n, k] = the sum over C of a[n] b[the choice's row]: in f64 on a CPU; on a GPU in the wide dtype, as a tree over a
/// warp.
void row_products(const Tensor& a_NC, const Tensor& b_MC, const Tensor& row_of_choice_NK, const Tensor& products_NK);

namespace cuda {
decltype(kernels::sort_by_expert) sort_by_expert;
decltype(kernels::gather_rows) gather_rows;
decltype(kernels::sum_rows) sum_rows;
decltype(kernels::row_products) row_products;
}  // namespace cuda

}  // namespace spillway::kernels
