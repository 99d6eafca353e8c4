// The router of a mixture of experts, which decides to which experts each token goes, and with which weights (Shazeer et al.,
// arXiv:1701.06538; Jiang et al., Mixtral, arXiv:2401.04088; DeepSeek-V3, arXiv:2412.19437, section 2.1.2). Legend: N = tokens, E =
// experts, K = experts per token. All tensors are contiguous. Logits are f32, f64, bf16 or f16; probabilities and weights are in
// wide_dtype of the logits; experts are int32 indices.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

constexpr i64 kMaxExpertGroups = 32;

/// How a router makes probabilities of logits, chooses experts by them, and weights these experts.
struct RouterOptions {
  // softmax: over all experts of a token. sigmoid: of each logit by itself.
  enum class Scores : u8 { softmax, sigmoid } scores = Scores::softmax;

  // [E], in wide_dtype of the logits: is added to the probabilities for the choice of experts and groups, but not for the weights;
  // undefined if there is none. It has no gradient.
  Tensor bias_E;
  // The experts are `groups` groups, at most kMaxExpertGroups, of adjacent experts, all of the same size. Only experts of the
  // `chosen_groups` best groups are chosen. The score of a group is the sum of its `best_of_group` (1 or 2) largest biased probabilities.
  i64 groups = 1, chosen_groups = 1, best_of_group = 1;

  // whether the weights are divided by max(their sum, least_sum) + added_to_sum, where the two numbers are at least 0
  bool normalised = false;
  double least_sum = 0, added_to_sum = 0;
  double factor = 1;  // the factor of the weights, above 0

  /// Returns whether the weights are probabilities of a softmax or their shares of the sum, and nothing else.
  bool is_plain() const { return scores == Scores::softmax && least_sum == 0 && added_to_sum == 0 && factor == 1; }
};

/// Writes three results for each token. probabilities: the softmax of its logits, or their sigmoid. experts: the indices, in ascending
/// order, of the K experts with the largest biased probabilities among the chosen groups; of equal experts, or groups, the one with the
/// lower index is chosen. weights: the probabilities of these K experts, without the bias, normalised and multiplied as the options say.
/// If a probability of a token is NaN, all of them become NaN; its experts are then the first K, with NaN as weights. Throws Error(bug) if
/// the options do not fit the shapes.
void router(const Tensor& logits_NE, const RouterOptions& options, const Tensor& probabilities_NE, const Tensor& experts_NK,
            const Tensor& weights_NK);

/// The load-balancing loss of router_load.h over all layers of a micro-batch, with the numbers from which its gradient is computed. The
/// load of all layers must have been added before the backward pass of any of these layers begins.
struct RouterLoad {
  Tensor load_2E;     // the load; undefined if there is no load-balancing loss
  Tensor targets_N;   // the targets that were passed to add_router_load(), which mark padding
  double factor = 0;  // the factor by which the loss is multiplied
};

/// Computes dlogits, in the dtype of the logits, from the gradient of the weights, through the factor, the normalisation and the softmax
/// or sigmoid. The choice of experts itself has no gradient. If `load` is defined, which requires softmax, the gradient of the
/// load-balancing loss, to which padding tokens do not contribute, is added.
void router_gradient(const Tensor& probabilities_NE, const Tensor& experts_NK, const Tensor& weights_NK, const Tensor& dweights_NK,
                     const RouterOptions& options, const RouterLoad& load, const Tensor& dlogits_NE);

namespace cuda {
decltype(kernels::router) router;
decltype(kernels::router_gradient) router_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
