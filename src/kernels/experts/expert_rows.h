// Copies tokens to rows that are sorted by expert, and sums such rows back to tokens. A choice is one of the K experts
// of a token. There is one row for each choice; rows are sorted by expert and then by token, so that the rows of each
// expert are adjacent. Legend: N = tokens, K = experts per token, M = N K rows, E = experts, C = channels. All tensors
// are contiguous. Values are f32, f64, bf16 or f16. Weights are in wide_dtype of the values. Everything else is int32.
#pragma once
#include <algorithm>

#include "tensor/tensor.h"

namespace spillway::kernels {

/// How a GPU cuts the list of choices for sorting: into `count` stretches of `each` choices, the last of which may be shorter. One warp
/// handles a stretch, so `each` is a multiple of 32. Depends on the number of choices alone.
struct ChoiceStretches {
  i64 each, count;
};
constexpr ChoiceStretches choice_stretches(i64 choices) {
  constexpr i64 kLeast = 256, kMost = 512, kWarp = 32;  // the fewest choices of a stretch, and the largest number of stretches
  const i64 each = std::max(kLeast, round_up(ceil_div(choices, kMost), kWarp));
  return {each, ceil_div(choices, each)};
}

/// Returns the bytes of workspace that sort_by_expert() needs, on the current stream's device or on the GPU that a meta device imitates.
i64 sort_by_expert_workspace_bytes(i64 choices, i64 experts);

/// Sorts the choices experts[N, K], which must lie in [0, E) and ascend within each token. Writes begins[E + 1]: expert e has the rows
/// [begins[e], begins[e + 1]). Writes choice_of_row[M]: n K + k for choice k of token n. Writes row_of_choice[N, K], which ascends within
/// each token.
void sort_by_expert(const Tensor& experts_NK, const Tensor& begins, const Tensor& choice_of_row, const Tensor& row_of_choice_NK,
                    const Tensor& workspace);

/// Copies to[row] = from[token of the row]. If `weights` is defined, the row is multiplied by the weight of the choice that it stands for.
void gather_rows(const Tensor& from_NC, const Tensor& choice_of_row, const Tensor& weights_NK, const Tensor& to_MC);

/// Computes to[token], the sum of the token's K rows. If `weights` is defined, each row is multiplied by the weight
/// of the choice that it stands for. Rows are added in ascending order of experts, and the sum is rounded once.
void sum_rows(const Tensor& from_MC, const Tensor& row_of_choice_NK, const Tensor& weights_NK, const Tensor& to_NC);

/// Computes products[n, k], the scalar product over C of a[n] and the row of b that belongs to
/// choice k of token n. A CPU sums in f64. A GPU sums in the wide dtype, as a tree over a warp.
void row_products(const Tensor& a_NC, const Tensor& b_MC, const Tensor& row_of_choice_NK, const Tensor& products_NK);

namespace cuda {
decltype(kernels::sort_by_expert) sort_by_expert;
decltype(kernels::gather_rows) gather_rows;
decltype(kernels::sum_rows) sum_rows;
decltype(kernels::row_products) row_products;
}  // namespace cuda

}  // namespace spillway::kernels
