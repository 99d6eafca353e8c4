// The loss that evens experts out, as transformers adds it where config.json says output_router_logits: router_aux_loss_coef * E * sum over
// experts of f P, where f is an expert's choices and P the sum of its probabilities, each over tokens times layers with experts. Padding is
// left out, as transformers leaves out what its attention_mask masks. A step's loss weighs each micro-batch's router loss by its counted
// targets, as it does their tokens' losses; the Trainer of transformers adds it once whole for each micro-batch instead. Legend: N = tokens
// of the micro-batch.
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
    return {context.router_load_2E, padded_targets(context), context.loss_factor * weight(context)};
  }
  /// After its choices.
  void add_layer(const ops::Routed& routed, const nn::Context& context) const;
  /// To the sum of the micro-batch's token losses; after the last layer.
  void add_to(const Tensor& loss, const nn::Context& context) const;

 private:
  // Of choices times sums of probabilities.
  double weight(const nn::Context& context) const {
    const MicroBatch& batch = *context.batch;
    if (batch.counted_targets == 0) return 0;
    const double N = static_cast<double>((batch.tokens_BT.elems() - batch.padding) * layers_);
    return factor_ * static_cast<double>(batch.counted_targets) / (N * N);
  }
  // [N], which tell padding from tokens; undefined where there is no padding.
  static Tensor padded_targets(const nn::Context& context);

  double factor_;
  i64 layers_;
};

}  // namespace spillway::models
