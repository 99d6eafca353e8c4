// Which experts each token goes to, and how much of each it gets (Shazeer et al., arXiv:1701.06538; Jiang et al., Mixtral,
// arXiv:2401.04088). Legend: N = tokens, E = experts, K = experts of a token. All contiguous; probabilities and weights are of wide_dtype
// of the logits, which are f32, f64, bf16 or f16; experts are int32.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// probabilities = softmax of a token's logits; experts = those of the K largest, of equal ones the lower, in ascending order; weights =
/// their probabilities, divided by the sum of these if `normalised`. A token whose softmax is NaN goes to the first K, with NaN.
void router(const Tensor& logits_NE, bool normalised, const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& weights_NK);

/// The loss of router_load.h, of all layers of a micro-batch, as its gradient needs it. When the first of the layers runs backward the load
/// is complete.
struct RouterLoad {
  Tensor load_2E;     // undefined: there is no such loss
  Tensor targets_N;   // as add_router_load's
  double factor = 0;  // of the loss
};

/// dlogits, of the logits' type, from the weights' gradient: through the normalisation and the softmax; the choice itself has none. Where
/// `load` is defined, of its loss too, in which padding has no part.
void router_gradient(const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& weights_NK, const Tensor& dweights_NK,
                     bool normalised, const RouterLoad& load, const Tensor& dlogits_NE);

namespace cuda {
decltype(kernels::router) router;
decltype(kernels::router_gradient) router_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
