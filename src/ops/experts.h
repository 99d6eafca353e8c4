// Mixture of experts (Shazeer et al., arXiv:1701.06538): each token goes to K of E experts, and no token is dropped. Sizes depend on shapes
// alone: the N K rows of all experts form one matrix, sorted by expert and then by token. f32, f64, bf16 and f16. Legend: N = tokens, E =
// experts, K = experts per token, M = N K rows, C = channels, I = inputs, O = outputs.
#pragma once
#include <vector>

#include "kernels/experts/router.h"
#include "ops/weight.h"

namespace spillway::ops {

using autograd::Variable;

struct Routed {
  Variable weights_NK;      // weight of each chosen expert, in wide_dtype of the logits
  Tensor experts_NK;        // numbers of the chosen experts, int32, ascending within each token
  Tensor probabilities_NE;  // softmax over all experts, in wide_dtype of the logits
};
using kernels::RouterLoad;
/// Computes the softmax of each token's logits[N, E] and chooses the `chosen` most probable experts; of equally probable ones the lower
/// number wins. Their weights are their probabilities, divided by the sum of these if `normalised`. `load` adds the load-balancing loss's
/// gradient.
Routed router(const Variable& logits_NE, i64 chosen, bool normalised, const RouterLoad& load = {});

/// Where each token's choices lie in the matrix of rows; kernels/experts/expert_rows.h explains the members. All are int32.
struct ExpertRows {
  Tensor begins, choice_of_row, row_of_choice_NK;
};
ExpertRows expert_rows(const Tensor& experts_NK, i64 experts);

/// Copies each token's channels to the rows [M, C] of its chosen experts. Backward adds these rows' gradients in ascending order of
/// experts.
Variable to_experts(const Variable& x_NC, const ExpertRows& rows);

/// Returns y[M, O]: the rows of expert e are x's rows times w[e][O, I]^T. The weight of an expert without rows gets a gradient of zeros.
Variable expert_linear(const Variable& x_MI, const std::vector<Weight>& w_OI, const ExpertRows& rows);

/// Returns y[N, C]: the sum of each token's rows, each times its weight, added in ascending order of experts and rounded once.
Variable from_experts(const Variable& x_MC, const Variable& weights_NK, const ExpertRows& rows);

}  // namespace spillway::ops
