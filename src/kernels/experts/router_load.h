// The load-balancing loss of a mixture of experts (Shazeer et al., arXiv:1701.06538; Fedus et al., Switch, arXiv:2101.03961). It counts how
// often each expert was chosen and how probable it was, over the tokens of all layers of a micro-batch. Padding is left out, as in
// transformers' load_balancing_loss_func with an attention mask. Legend: N = tokens, E = experts, K = experts per token. load[2, E], f64,
// holds the number of choices and the sum of probabilities. The loss is factor * sum over E of choices * probability.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Adds one layer to the load: its probabilities[N, E], f32 or f64, and its experts[N, K], int32. Tokens whose target in targets[N], int32,
/// is kPaddingTarget (tensor/batch.h) are left out; with undefined targets all tokens count. Sums ascend over the tokens on a CPU and are a
/// tree over a block on a GPU.
void add_router_load(const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& targets_N, const Tensor& load_2E);

/// Adds the loss to `loss`, which is one f64.
void add_router_loss(const Tensor& load_2E, double factor, const Tensor& loss);

namespace cuda {
decltype(kernels::add_router_load) add_router_load;
decltype(kernels::add_router_loss) add_router_loss;
}  // namespace cuda

}  // namespace spillway::kernels
