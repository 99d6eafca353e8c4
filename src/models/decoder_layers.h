// The parts of a decoder's transformer block: attention, MLP or experts. Only decoder*.cc use this header.
#pragma once
#include <optional>

#include "models/block_part.h"
#include "models/expert_mlps.h"
#include "models/families/style.h"
#include "models/rotary.h"
#include "models/router_loss.h"
#include "nn/key_value_cache.h"
#include "nn/layers.h"

namespace spillway::models {

/// Returns a linear layer of a block, with the config's adapter, storage format and precision.
nn::Linear projection(const ModelConfig& config, const std::string& name, i64 in, i64 out, bool bias, DType dtype);
/// The queries, keys and values of all heads. The rotated elements of a head are its leading ones.
struct AttentionHeads {
  nn::Variable q_BTHD, k_BTHD, v_BTHD;
  nn::Variable gate_BTHD;  // has a value if the style has an output gate
};

/// Makes the heads of latent attention (model_config.h). Heads of queries are stored with their rotated elements behind the others. Scores
/// do not depend on the order, so these elements come first here, as everywhere else in this program. R = rotated elements.
class LatentHeads {
 public:
  LatentHeads(const ModelConfig& config, const std::string& name, DType dtype);
  AttentionHeads operator()(const nn::Variable& x_BTC, const nn::Context& context) const;
  void list(nn::ParameterList& parameters) const;

 private:
  i64 heads_, rotated_, plain_, rank_, values_;  // `plain_` elements of a head are not rotated
  std::optional<nn::Linear> q_, q_a_, q_b_;      // either q_ alone is set, or q_a_ and q_b_ are
  nn::Linear kv_a_, kv_b_;
  std::optional<nn::RmsNorm> q_a_norm_;
  nn::RmsNorm kv_a_norm_;
};

/// Attention with rotary positions. Shape letters: B = batch size, T = positions, C = width.
class DecoderAttention final : public BlockPart {
 public:
  DecoderAttention(const ModelConfig& config, const std::string& name, i64 layer, DType dtype);
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const override {
    return attend(residual_BTC, x_BTC, context, nullptr);
  }
  /// Returns the attention of x, plus the residual if that has a value. A layer that shares keys reads `keys`, those of another layer; any
  /// other layer stores there its own, rotated, if `keys` is not null.
  nn::Variable attend(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context,
                      nn::KeysAndValues* keys) const;
  void list(nn::ParameterList& parameters) const override;

 private:
  AttentionHeads heads_of(const nn::Variable& x_BTC, const nn::Context& context) const;
  nn::Variable values_of(const nn::Variable& v_BTHD) const;
  /// Rotates the heads x by their positions. `length` is the number of positions that a row has, or will have
  /// when generation ends: longrope chooses its frequencies by it.
  nn::Variable rotated(const nn::Variable& x_BTHD, const Tensor& positions_BT, i64 length) const;
  nn::Variable normed(const nn::Variable& x, const std::optional<nn::RmsNorm>& norm, const nn::Context& context) const;

  i64 head_dim_, heads_, kv_heads_, window_;
  bool shares_keys_;
  double scale_, softcap_, query_growth_;
  std::optional<Rotary> rotary_;
  const DecoderStyle& style_;
  double norm_eps_;
  std::optional<LatentHeads> latent_;          // if it is set, qkv_, q_, k_ and v_ are not
  std::optional<nn::Linear> qkv_, q_, k_, v_;  // either qkv_ alone is set, or those of q_, k_ and v_ that the layer has
  nn::Linear o_;
  std::optional<nn::RmsNorm> q_norm_, k_norm_;
  std::shared_ptr<nn::Parameter> sinks_H_;  // null if there are none
  nn::Dropout dropout_;
  kernels::AttentionLibrary library_;
};

/// A gated MLP: down(activation(gate(x)) * up(x)).
class DecoderMlp final : public BlockPart {
 public:
  DecoderMlp(const ModelConfig& config, const std::string& name, i64 layer, DType dtype);
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const override;
  void list(nn::ParameterList& parameters) const override;

 private:
  bool gelu_gate_;
  std::optional<nn::Linear> gate_up_, gate_, up_;  // either gate_up_ alone is set, or gate_ and up_ are
  nn::Linear down_;
};

/// A mixture of experts, whose result for a token is the sum of the chosen experts' MLPs,
/// weighted by the router, plus that of the shared expert, if there is one, which may have a gate. Mixtral's parameter names differ from
/// those of the other families.
class DecoderExperts final : public BlockPart {
 public:
  DecoderExperts(const ModelConfig& config, const std::string& layer_name, i64 layer, DType dtype);
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const override;
  void list(nn::ParameterList& parameters) const override;

 private:
  /// Returns the logits [N, E] of the router for the tokens x[N, C].
  nn::Variable logits(const nn::Variable& x_NC, const nn::Context& context) const;
  ops::RouterOptions options(const nn::Context& context) const;

  i64 chosen_;
  bool normalised_;
  RoutingConfig routing_;
  RouterLoss loss_;
  nn::Linear router_;
  std::shared_ptr<nn::Parameter> bias_E_;  // null if the router has none
  ExpertMlps mlps_;
  std::optional<DecoderMlp> shared_;
  std::optional<nn::Linear> shared_gate_;
};

}  // namespace spillway::models
