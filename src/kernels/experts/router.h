// The router of a mixture of experts: which experts each token goes to, and with which weights (Shazeer et al., arXiv:1701.06538; Jiang et
// al., Mixtral, arXiv:2401.04088). Legend: N = tokens, E = experts, K = experts per token. All tensors are contiguous. Logits are f32, f64,
// bf16 or f16, probabilities and weights have wide_dtype of them, and experts are int32.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Writes the softmax of each token's logits as probabilities, the K experts with the largest ones in ascending order (of equal ones the
/// lower number wins), and their weights: their probabilities, divided by the sum of these if `normalised`. A token whose softmax is NaN
/// goes to the first K experts, with NaN as weights.
void router(const Tensor& logits_NE, bool normalised, const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& weights_NK);

/// The load-balancing loss of router_load.h over all layers of a micro-batch, as its gradient needs it. The load must be complete when the
/// first of the layers runs backward.
struct RouterLoad {
  Tensor load_2E;     // undefined: there is no such loss
  Tensor targets_N;   // targets as in add_router_load()
  double factor = 0;  // factor of the loss
};

/// Computes dlogits, in the logits' dtype, from the gradient of the weights, through the normalisation and the softmax; the choice itself
/// has no gradient. If `load` is defined, adds the gradient of its loss, in which padding tokens have no part.
void router_gradient(const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& weights_NK, const Tensor& dweights_NK,
                     bool normalised, const RouterLoad& load, const Tensor& dlogits_NE);

namespace cuda {
decltype(kernels::router) router;
decltype(kernels::router_gradient) router_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
