// The router loss (load-balancing loss) of mixtures of experts, as transformers adds it if config.json sets
// output_router_logits: router_aux_loss_coef * E * sum over experts of f P. Here E is the number of experts, f counts how often
// an expert was chosen, and P is the sum of the expert's probabilities; f and P are each divided by (number of tokens) *
// (number of layers with experts). Padding is excluded, as transformers excludes what its attention_mask masks. A step's loss
// weights the router loss of each micro-batch by the number of targets that contribute, as it weights the token losses; the
// Trainer of transformers instead adds the router loss once for each micro-batch. Shape letters: N = tokens of the micro-batch.
#pragma once
#include "models/families/model_config.h"
#include "nn/module.h"
#include "ops/experts/experts.h"

namespace spillway::models {

class RouterLoss {
 public:
  explicit RouterLoss(const ModelConfig& c)
      : factor_(c.experts && c.experts->evened_out ? c.experts->balance * static_cast<double>(c.experts->count) : 0),
        layers_(c.expert_layers()) {}

  /// Returns the data that a layer's router needs to compute the gradient of the router loss.
  ops::RouterLoad of_layer(const nn::Context& context) const {
    if (!context.router_load_2E.defined()) return {};
    return {context.router_load_2E, padded_targets(context), context.loss_factor * weight(context)};
  }
  /// Adds a layer's choices and probabilities to the load of the micro-batch. Call add_layer() after the router has chosen.
  void add_layer(const ops::Routed& routed, const nn::Context& context) const;
  /// Adds the router loss to the sum of the micro-batch's token losses. Call add_to() after the last layer.
  void add_to(const Tensor& loss, const nn::Context& context) const;

 private:
  // Returns the factor w of the router loss: w * (sum over experts of number of choices
  // * sum of probabilities) is added to the sum of the micro-batch's token losses.
  double weight(const nn::Context& context) const {
    const MicroBatch& batch = *context.batch;
    if (batch.counted_targets == 0) return 0;
    const double N = static_cast<double>((batch.tokens_BT.elems() - batch.padding) * layers_);
    return factor_ * static_cast<double>(batch.counted_targets) / (N * N);
  }
  // Returns the targets [N], which distinguish padding from tokens. The result is undefined if there is no padding.
  static Tensor padded_targets(const nn::Context& context);

  double factor_;
  i64 layers_;
};

}  // namespace spillway::models
