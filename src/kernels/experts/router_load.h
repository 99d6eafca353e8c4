// What evens experts out (Shazeer et al., arXiv:1701.06538; Fedus et al., Switch, arXiv:2101.03961): how often each was chosen and how
// probable it was, over the tokens of all layers of a micro-batch. Padding does not count, as in transformers' load_balancing_loss_func
// with an attention mask. Legend: N = tokens, E = experts, K = experts of a token. load[2, E], f64: choices, and sums of probabilities. The
// loss is factor * sum over E of choices * probability.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Adds a layer's: its probabilities[N, E], f32 or f64, and its experts[N, K], int32. targets[N], int32: tokens whose target is
/// kPaddingTarget (tensor/batch.h) are left out; undefined: all tokens count. Sums go up over the tokens, on a GPU as a tree over a block.
void add_router_load(const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& targets_N, const Tensor& load_2E);

/// Adds the loss to `loss`, one f64.
void add_router_loss(const Tensor& load_2E, double factor, const Tensor& loss);

namespace cuda {
decltype(kernels::add_router_load) add_router_load;
decltype(kernels::add_router_loss) add_router_loss;
}  // namespace cuda

}  // namespace spillway::kernels
