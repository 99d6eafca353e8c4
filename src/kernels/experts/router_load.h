// The load-balancing loss of a mixture of experts (Shazeer et al., arXiv:1701.06538; Fedus et al., Switch,
// arXiv:2101.03961). The load says how often each expert was chosen and how probable its choice was, over the tokens
// of all layers of a micro-batch. Padding tokens are left out, as in transformers' load_balancing_loss_func with an
// attention mask. Legend: N = tokens, E = experts, K = experts per token. load[2, E], in f64, holds for each expert
// the number of choices and the sum of probabilities. The loss is factor * sum over E of choices * probabilities.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Adds one layer to the load, given its probabilities[N, E] (f32 or f64) and its experts[N, K] (int32). Tokens whose target in the int32
/// targets[N] is kPaddingTarget (tensor/batch.h) are left out. If `targets` is undefined, all tokens contribute. A CPU sums over the tokens
/// in ascending order, a GPU as a tree over a thread block.
void add_router_load(const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& targets_N, const Tensor& load_2E);

/// Adds the load-balancing loss to `loss`, which is a single f64.
void add_router_loss(const Tensor& load_2E, double factor, const Tensor& loss);

namespace cuda {
decltype(kernels::add_router_load) add_router_load;
decltype(kernels::add_router_loss) add_router_loss;
}  // namespace cuda

}  // namespace spillway::kernels
