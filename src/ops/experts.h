// Mixture of experts (Shazeer et al., arXiv:1701.06538): each token goes to K of E experts, none is dropped. Sizes depend on shapes alone:
// the N K rows of all experts lie in one matrix, sorted by expert and then by token. f32, f64, bf16 and f16. Legend: N = tokens, E =
// experts, K = experts of a token, M = N K rows, C = channels, I = inputs, O = outputs.
#pragma once
#include <vector>

#include "kernels/experts/router.h"
#include "ops/weight.h"

namespace spillway::ops {

using autograd::Variable;

struct Routed {
  Variable weights_NK;      // wide_dtype of the logits
  Tensor experts_NK;        // int32, ascending in each token
  Tensor probabilities_NE;  // wide_dtype of the logits
};
using kernels::RouterLoad;
/// Softmax of a token's logits[N, E]; the `chosen` largest, of equal ones the lower, divided by their sum if `normalised`.
Routed router(const Variable& logits_NE, i64 chosen, bool normalised, const RouterLoad& load = {});

/// Where the choices of all tokens lie as rows: kernels/experts/expert_rows.h. All int32.
struct ExpertRows {
  Tensor begins, choice_of_row, row_of_choice_NK;
};
ExpertRows expert_rows(const Tensor& experts_NK, i64 experts);

/// Each token's channels as the rows [M, C] of its choices. The gradient adds them by ascending expert.
Variable to_experts(const Variable& x_NC, const ExpertRows& rows);

/// y[M, O]: the rows of expert e are x's times w[e][O, I]^T. An expert without rows has a gradient of zeros.
Variable expert_linear(const Variable& x_MI, const std::vector<Weight>& w_OI, const ExpertRows& rows);

/// y[N, C]: the sum of a token's rows, each times its weight, by ascending expert, rounded once.
Variable from_experts(const Variable& x_MC, const Variable& weights_NK, const ExpertRows& rows);

}  // namespace spillway::ops
