// Mixture of experts (Shazeer et al., arXiv:1701.06538) for f32, f64, bf16 and f16: each token goes to K of E
// experts, and no token is dropped. Each token is copied to one row for each of its experts. These N K rows
// form one matrix, sorted by expert and then by token, so that all sizes are known from the shapes. Legend: N
// = tokens, E = experts, K = experts per token, M = N K rows, C = channels, I = inputs, O = outputs.
#pragma once
#include <vector>

#include "kernels/experts/router.h"
#include "ops/products/weight.h"

namespace spillway::ops {

using autograd::Variable;

struct Routed {
  Variable weights_NK;      // the weight of each chosen expert, in wide_dtype of the logits
  Tensor experts_NK;        // the indices of the chosen experts, int32, ascending within each token
  Tensor probabilities_NE;  // of all experts, in wide_dtype of the logits
};
using kernels::RouterLoad;
using kernels::RouterOptions;
/// Computes the probabilities of each token's logits[N, E], by a softmax or a sigmoid, and chooses `chosen` experts; of equal experts it
/// takes the one with the lower index. RouterOptions (kernels/experts/router.h) says how experts are chosen and weighted. If
/// `load.load_2E` is defined, which requires a softmax, backward adds the gradient of the load-balancing loss.
Routed router(const Variable& logits_NE, i64 chosen, const RouterOptions& options = {}, const RouterLoad& load = {});

/// Describes where the rows of each token's experts lie in the matrix of rows. kernels/experts/expert_rows.h explains the members, which
/// are int32.
struct ExpertRows {
  Tensor begins, choice_of_row, row_of_choice_NK;
};
ExpertRows expert_rows(const Tensor& experts_NK, i64 experts);

/// Copies each token's channels to the rows [M, C] of its chosen experts. The gradient of a token is the sum of its rows' gradients, added
/// in ascending order of experts.
Variable to_experts(const Variable& x_NC, const ExpertRows& rows);

/// Returns y[M, O]: each row of x that belongs to expert e, times w[e][O,
/// I]^T. If an expert has no rows, its weight gets a gradient of zeros.
Variable expert_linear(const Variable& x_MI, const std::vector<Weight>& w_OI, const ExpertRows& rows);

/// Returns y[M, O] = x[M, O] plus, in each row, the bias b[e][O] of the row's expert. `experts_NK` are the choices from which the rows were
/// made. The gradient of a bias is the sum over its expert's rows in ascending order of tokens, in wide_dtype, rounded once; it is zero if
/// the expert has no rows.
Variable add_expert_biases(const Variable& x_MO, const std::vector<Variable>& b_O, const Tensor& experts_NK, const ExpertRows& rows);

/// Returns y[N, C]: the sum of each token's rows, each row times its weight.
/// Rows are added in ascending order of experts, and the sum is rounded once.
Variable from_experts(const Variable& x_MC, const Variable& weights_NK, const ExpertRows& rows);

}  // namespace spillway::ops
