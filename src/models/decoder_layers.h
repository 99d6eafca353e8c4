// The parts of a decoder's transformer block: attention, MLP or experts, and the
// ways in which a family differs from Llama. decoder*.cc and onnx/language.cc use this header.
#pragma once
#include <optional>

#include "models/rotary.h"
#include "models/router_loss.h"
#include "nn/layers.h"

namespace spillway::models {

/// The ways in which a family of decoders differs from Llama.
struct DecoderStyle {
  enum class QkNorm { none, head, whole };  // the norm of queries and keys: of each head, or of the whole before the split into heads
  QkNorm qk_norm = QkNorm::none;
  // norm_before: attention and MLP have a norm of their input; norm_after: they have a norm of their output
  bool norm_before = true, norm_after = false;
  bool output_bias = false;  // whether attention's output projection has a bias if the other projections have one
  bool fused = false;        // whether one projection gives queries, keys and values, and one gives gate and up
  bool gelu_gate = false, scaled_embedding = false;
  double gain_offset = 0;  // the number that is added to the weights of the norms
};
DecoderStyle style_of(const ModelConfig& config);

/// Attention with rotary positions. Shape letters: B = batch size, T = positions, C = width.
class DecoderAttention {
 public:
  DecoderAttention(const ModelConfig& config, const std::string& name, i64 layer, DType dtype);
  /// Returns the attention of x, plus the residual if that has a value.
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
  std::optional<nn::Linear> qkv_, q_, k_, v_;  // either qkv_ alone is set, or q_, k_ and v_ are
  nn::Linear o_;
  std::optional<nn::RmsNorm> q_norm_, k_norm_;
  nn::Dropout dropout_;
  kernels::AttentionLibrary library_;
};

/// A gated MLP: down(activation(gate(x)) * up(x)).
class DecoderMlp {
 public:
  DecoderMlp(const ModelConfig& config, const std::string& name, DType dtype);
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const;
  void list(nn::ParameterList& parameters) const;

 private:
  bool gelu_gate_;
  std::optional<nn::Linear> gate_up_, gate_, up_;  // either gate_up_ alone is set, or gate_ and up_ are
  nn::Linear down_;
};

/// A mixture of experts, whose result for a token is the sum of the chosen experts' MLPs,
/// weighted by the router. Mixtral's parameter names differ from those of the other families.
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
  std::vector<nn::Linear> gate_, up_, down_;  // one entry for each expert
};

}  // namespace spillway::models
