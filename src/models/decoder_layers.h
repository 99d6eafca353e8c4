// What a decoder's blocks are made of: how its family differs from Llama, its attention and its MLP. For decoder.cc.
#pragma once
#include <optional>

#include "models/rotary.h"
#include "models/router_loss.h"
#include "nn/layers.h"

namespace spillway::models {

struct DecoderStyle {
  enum class QkNorm { none, head, whole };  // of queries and keys, before they are turned: of each head, or before the split into heads
  QkNorm qk_norm = QkNorm::none;
  bool norm_before = true, norm_after = false;  // of attention and MLP; after: before the residual is added
  bool output_bias = false;                     // of attention's last projection, where the others have one
  bool fused = false;                           // one projection for queries, keys and values, and one for gate and up
  bool gelu_gate = false, scaled_embedding = false;
  double gain_offset = 0;  // of the norms
};
DecoderStyle style_of(const ModelConfig& config);

/// Queries, keys and values turned by position, mixed. Legend: B = rows, T = positions, C = width.
class DecoderAttention {
 public:
  DecoderAttention(const ModelConfig& config, const std::string& name, i64 layer, DType dtype);
  /// (residual +) the mixed x; no residual without a value.
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const;
  void list(nn::ParameterList& parameters) const;

 private:
  struct Heads {
    nn::Variable q_BTHD, k_BTHD, v_BTHD;
  };
  Heads heads_of(const nn::Variable& x_BTC, const nn::Context& context) const;
  nn::Variable normed(const nn::Variable& x, const std::optional<nn::RmsNorm>& norm, const nn::Context& context) const;

  i64 head_dim_, heads_, kv_heads_, window_;
  double scale_, softcap_;
  Rotary rotary_;
  DecoderStyle style_;
  std::optional<nn::Linear> qkv_, q_, k_, v_;  // fused, or apart
  nn::Linear o_;
  std::optional<nn::RmsNorm> q_norm_, k_norm_;
  nn::Dropout dropout_;
  kernels::AttentionLibrary library_;
};

/// down(activation(gate(x)) * up(x)).
class DecoderMlp {
 public:
  DecoderMlp(const ModelConfig& config, const std::string& name, DType dtype);
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const;
  void list(nn::ParameterList& parameters) const;

 private:
  bool gelu_gate_;
  std::optional<nn::Linear> gate_up_, gate_, up_;  // fused, or apart
  nn::Linear down_;
};

/// Each token's sum of some experts' MLPs, times the router's weights. Mixtral's names are its own.
class DecoderExperts {
 public:
  DecoderExperts(const ModelConfig& config, const std::string& name, DType dtype);
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const;
  void list(nn::ParameterList& parameters) const;

 private:
  i64 chosen_;
  bool normalised_;
  RouterLoss loss_;
  nn::Linear router_;
  std::vector<nn::Linear> gate_, up_, down_;  // of each expert
};

}  // namespace spillway::models
