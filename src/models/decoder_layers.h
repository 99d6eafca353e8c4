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

/// Attention with rotary positions. Shape letters: B = batch size, T = positions, C = width.
class DecoderAttention final : public BlockPart {
 public:
  DecoderAttention(const ModelConfig& config, const std::string& name, i64 layer, DType dtype);
  /// Returns the attention of x, plus the residual if that has a value. A layer that shares keys reads `keys`, those of another layer; any
  /// other layer stores there its own, rotated, if `keys` is not null.
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context,
                          nn::KeysAndValues* keys) const;
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const override {
    return (*this)(residual_BTC, x_BTC, context, nullptr);
  }
  void list(nn::ParameterList& parameters) const override;

 private:
  struct Heads {
    nn::Variable q_BTHD, k_BTHD, v_BTHD;
    nn::Variable gate_BTHD;  // has a value if the style has an output gate
  };
  Heads heads_of(const nn::Variable& x_BTC, const nn::Context& context) const;
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
  std::optional<nn::Linear> qkv_, q_, k_, v_;  // either qkv_ alone is set, or those of q_, k_ and v_ that the layer has
  nn::Linear o_;
  std::optional<nn::RmsNorm> q_norm_, k_norm_;
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
/// weighted by the router. Mixtral's parameter names differ from those of the other families.
class DecoderExperts final : public BlockPart {
 public:
  DecoderExperts(const ModelConfig& config, const std::string& name, i64 layer, DType dtype);
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const override;
  void list(nn::ParameterList& parameters) const override;

 private:
  i64 chosen_;
  bool normalised_;
  RouterLoss loss_;
  nn::Linear router_;
  ExpertMlps mlps_;
};

}  // namespace spillway::models
