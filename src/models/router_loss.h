// The loss that evens experts out, as transformers adds it where config.json says output_router_logits: router_aux_loss_coef * E * sum over
// experts of f P, where f is an expert's choices and P the sum of its probabilities, each over tokens times layers with experts. All
// positions count, padding too. A micro-batch's is weighted by its counted targets, as its tokens' losses are. Legend: N = tokens of the
// micro-batch.
#pragma once
#include "models/config.h"
#include "nn/module.h"
#include "ops/experts.h"

namespace spillway::models {

class RouterLoss {
 public:
  explicit RouterLoss(const ModelConfig& c)
      : factor_(c.experts && c.experts->evened_out ? c.experts->balance * static_cast<double>(c.experts->count) : 0),
        layers_(c.expert_layers()) {}

  /// What a layer's router is told.
  ops::RouterLoad of_layer(const nn::Context& context) const {
    if (!context.router_load_2E.defined()) return {};
    return {context.router_load_2E, context.loss_factor * weight(context)};
  }
  /// After its choices.
  void add_layer(const ops::Routed& routed, const ops::ExpertRows& rows, const nn::Context& context) const;
  /// To the sum of the micro-batch's token losses; after the last layer.
  void add_to(const Tensor& loss, const nn::Context& context) const;

 private:
  // Of choices times sums of probabilities.
  double weight(const nn::Context& context) const {
    const double N = static_cast<double>(context.batch->tokens_BT.elems() * layers_);
    return factor_ * static_cast<double>(context.batch->counted_targets) / (N * N);
  }

  double factor_;
  i64 layers_;
};

}  // namespace spillway::models
