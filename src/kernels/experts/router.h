// The router of a mixture of experts, which decides to which experts each token goes, and with which weights (Shazeer et al.,
// arXiv:1701.06538; Jiang et al., Mixtral, arXiv:2401.04088). Legend: N = tokens, E = experts, K = experts per token. All tensors are
// contiguous. Logits are f32, f64, bf16 or f16; probabilities and weights are in wide_dtype of the logits; experts are int32 indices.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Writes three results for each token. probabilities: the softmax of its logits. experts: the indices, in ascending order, of the K
/// experts with the largest probabilities; of equally probable experts the one with the lower index is chosen. weights: the probabilities
/// of these K experts, divided by their sum if `normalised`. If the softmax of a token is NaN, its experts are the first K, with NaN as
/// weights.
void router(const Tensor& logits_NE, bool normalised, const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& weights_NK);

/// The load-balancing loss of router_load.h over all layers of a micro-batch, with the numbers from which its gradient is computed. The
/// load of all layers must have been added before the backward pass of any of these layers begins.
struct RouterLoad {
  Tensor load_2E;     // the load; undefined if there is no load-balancing loss
  Tensor targets_N;   // the targets that were passed to add_router_load(), which mark padding
  double factor = 0;  // the factor by which the loss is multiplied
};

/// Computes dlogits, in the dtype of the logits, from the gradient of the weights, through the
/// normalisation and the softmax. The choice of experts itself has no gradient. If `load` is defined,
/// the gradient of the load-balancing loss, to which padding tokens do not contribute, is added.
void router_gradient(const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& weights_NK, const Tensor& dweights_NK,
                     bool normalised, const RouterLoad& load, const Tensor& dlogits_NE);

namespace cuda {
decltype(kernels::router) router;
decltype(kernels::router_gradient) router_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
