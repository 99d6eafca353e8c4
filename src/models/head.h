// The last block of every language model of this program: final norm, projection onto the vocabulary, loss. The projection's weight [V, C]
// is either a parameter that only the head reads (use 0), or the token embedding, which the head reads as its second user (use 1). Shape
// letters: B = batch size, T = positions, C = width, V = vocabulary.
#pragma once
#include <limits>
#include <optional>

#include "base/error.h"
#include "models/router_loss.h"
#include "nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/layout/shape.h"
#include "ops/losses/loss.h"
#include "ops/products/linear.h"

namespace spillway::models {

template <class Norm>
class LanguageModelHead final : public nn::Module {
 public:
  struct Options {
    ops::LogitsMemory memory;
    double multiplier = 1;  // the factor of the logits, by which the normed activations are multiplied
    double softcap = 0;     // the soft cap of the logits; 0 if there is none
    std::optional<RouterLoss> router_loss;
  };
  LanguageModelHead(Norm norm, nn::ParameterUse weight, Options options = {})
      : norm_(std::move(norm)), weight_(std::move(weight)), options_(std::move(options)) {}

  nn::Variable forward(const nn::Variable& x_BTC, const nn::Context& context) const override {
    const nn::Variable w = context.use(*weight_.parameter, weight_.use);
    if (context.mode == nn::Mode::generate) return ops::logits(normed(last(x_BTC, context), context).value, w.value, options_.softcap);
    if (context.all_logits) return capped(ops::linear(normed(x_BTC, context), w, {}, ops::WeightLayout::out_in));
    ops::LogitsMemory memory = options_.memory;
    if (context.keep_logits) memory.kept_bytes = std::numeric_limits<i64>::max();
    nn::Variable loss =
        ops::linear_cross_entropy(normed(x_BTC, context), w, context.batch->targets_BT, context.loss_factor, memory, options_.softcap);
    if (options_.router_loss) options_.router_loss->add_to(loss.value, context);
    return loss;
  }

  std::vector<nn::ParameterUse> parameters() const override {
    nn::ParameterList list;
    norm_.list(list);
    list.push_back(weight_);
    return list;
  }
  i64 logits_again_bytes(i64 rows) const override {
    const nn::Parameter& w = *weight_.parameter;
    return ops::logits_again_bytes(rows, w.shape[0], w.dtype, options_.memory);
  }

 private:
  // Returns the activations [B, C] of the position context.logits_position. The position is selected before
  // the norm. The result is that of selecting it afterwards, because the norm treats each position separately.
  static nn::Variable last(const nn::Variable& x_BTC, const nn::Context& context) {
    const i64 t = context.logits_position;
    require(t >= 0 && t < x_BTC.shape()[1], "[head] expected logits_position to lie inside the sequence");
    return ops::reshape(ops::slice(x_BTC, 1, t, t + 1), {x_BTC.shape()[0], x_BTC.shape()[2]});
  }

  nn::Variable normed(const nn::Variable& x, const nn::Context& context) const {
    const nn::Variable y = norm_(x, context);
    return options_.multiplier == 1 ? y : ops::scale(y, options_.multiplier);
  }
  nn::Variable capped(const nn::Variable& logits) const {
    const double cap = options_.softcap;
    return cap > 0 ? ops::scale(ops::tanh(ops::scale(logits, 1 / cap)), cap) : logits;
  }

  Norm norm_;
  nn::ParameterUse weight_;
  Options options_;
};

/// Returns the head's weight: with a tied head the second use of the token embedding, otherwise a new parameter.
inline nn::ParameterUse head_weight(bool tied, const nn::Embedding& tokens, double std) {
  const nn::Parameter& table = *tokens.weight();
  if (tied) return {tokens.weight(), 1};
  auto own = nn::make_parameter("lm_head.weight", table.shape, table.dtype, {nn::Initializer::Kind::normal, std});
  own->of_ids = true;
  return {std::move(own), 0};
}

}  // namespace spillway::models
