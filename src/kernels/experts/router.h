// Which experts each token goes to, and how much of each it gets (Shazeer et al., arXiv:1701.06538; Jiang et al., Mixtral,
// arXiv:2401.04088). Legend: N = tokens, E = experts, K = experts of a token. All contiguous; probabilities and weights are of wide_dtype
// of the logits, which are f32, f64, bf16 or f16; experts are int32.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// probabilities = softmax of a token's logits; experts = those of the K largest, of equal ones the lower, in ascending order; weights =
/// their probabilities, divided by the sum of these if `normalised`. A token whose softmax is NaN goes to the first K, with NaN.
void router(const Tensor& logits_NE, bool normalised, const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& weights_NK);

/// dlogits, of the logits' type, from the weights' gradient: through the normalisation and the softmax; the choice itself has none. Where
/// `load` (router_load.h) is defined, of its loss too.
void router_gradient(const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& weights_NK, const Tensor& dweights_NK,
                     bool normalised, const Tensor& load_2E, double load_factor, const Tensor& dlogits_NE);

namespace cuda {
decltype(kernels::router) router;
decltype(kernels::router_gradient) router_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
