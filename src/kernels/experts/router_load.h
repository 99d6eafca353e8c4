// What evens experts out (Shazeer et al., arXiv:1701.06538; Fedus et al., Switch, arXiv:2101.03961): how often each was chosen and how
// probable it was, over all tokens of all layers of a micro-batch. Legend: N = tokens, E = experts. load[2, E], f64: choices, and sums of
// probabilities. The loss is factor * sum over E of choices * probability.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Adds a layer's: its probabilities[N, E], f32 or f64, and its rows begins[E + 1] (expert_rows.h). Sums go up over the tokens, on a GPU as
/// a tree over a block.
void add_router_load(const Tensor& probabilities_NE, const Tensor& begins, const Tensor& load_2E);

/// Adds the loss to `loss`, one f64.
void add_router_loss(const Tensor& load_2E, double factor, const Tensor& loss);

namespace cuda {
decltype(kernels::add_router_load) add_router_load;
decltype(kernels::add_router_loss) add_router_loss;
}  // namespace cuda

}  // namespace spillway::kernels
