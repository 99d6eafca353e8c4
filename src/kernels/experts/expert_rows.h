// Tokens to the rows of their experts and back. A choice is a token's expert number k; the rows are all choices, sorted by expert and then
// by token, so that each expert's lie together. Legend: N = tokens, K = experts of a token, M = N K rows, E = experts, C = channels. All
// contiguous; int32 but for the values, which are f32, f64, bf16 or f16, and the weights, of wide_dtype of these.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// experts[N, K], ascending in each token and within [0, E) -> begins[E + 1], where expert e has rows [begins[e], begins[e + 1]);
/// choice_of_row[M] = n K + k; row_of_choice[N, K], ascending in each token.
void sort_by_expert(const Tensor& experts_NK, const Tensor& begins, const Tensor& choice_of_row, const Tensor& row_of_choice_NK);

/// to[row] = from[its token], times the choice's weight unless `weights` is undefined.
void gather_rows(const Tensor& from_NC, const Tensor& choice_of_row, const Tensor& weights_NK, const Tensor& to_MC);

/// to[token] = the sum of its rows, each times its weight unless `weights` is undefined: by ascending expert, rounded once.
void sum_rows(const Tensor& from_MC, const Tensor& row_of_choice_NK, const Tensor& weights_NK, const Tensor& to_NC);

/// products[n, k] = sum over C of a[n] b[the choice's row]; in f64, on a GPU in the wide type as a tree over a warp.
void row_products(const Tensor& a_NC, const Tensor& b_MC, const Tensor& row_of_choice_NK, const Tensor& products_NK);

namespace cuda {
decltype(kernels::sort_by_expert) sort_by_expert;
decltype(kernels::gather_rows) gather_rows;
decltype(kernels::sum_rows) sum_rows;
decltype(kernels::row_products) row_products;
}  // namespace cuda

}  // namespace spillway::kernels
