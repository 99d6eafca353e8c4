// The mixers of a decoder's blocks that are recurrent: in generation they keep states of one size instead of keys and values. Only
// decoder*.cc use this header.
#pragma once
#include <optional>

#include "models/block_part.h"
#include "models/families/model_config.h"

namespace spillway::models {

/// A causal depthwise convolution with weight[channels, 1, taps] and, if wanted, a bias. In generation its last inputs are state 0 of the
/// block.
class CausalConv {
 public:
  CausalConv(const std::string& name, i64 channels, i64 taps, bool bias, double std, DType dtype);
  /// Returns the convolution of x[B, T, channels], through SiLU if `silu` is set.
  nn::Variable operator()(const nn::Variable& x, bool silu, const nn::Context& context) const;
  void list(nn::ParameterList& parameters) const;

 private:
  std::shared_ptr<nn::Parameter> weight_, bias_;  // bias_ is null if there is none
};

/// The layer of Mamba 2 (Dao and Gu, arXiv:2405.21060): projection, convolution, selective scan, gated norm, projection. In generation the
/// states of the scan are state 1 of the block.
class Mamba2 final : public BlockPart {
 public:
  Mamba2(const ModelConfig& config, const std::string& name, DType dtype);
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const override;
  void list(nn::ParameterList& parameters) const override;
  bool weight_gradients_read_parameters() const override { return true; }

 private:
  nn::Variable scanned(const nn::Variable& xbc, const nn::Variable& dt, const nn::Context& context) const;

  Mamba2Config config_;
  double norm_eps_;
  nn::Linear in_;
  CausalConv conv_;
  std::shared_ptr<nn::Parameter> dt_bias_, a_log_, d_, norm_;
  nn::Linear out_;
};

/// The layer of LFM2: out(c * conv(b * x)), where one projection gives b, c and x.
class GatedShortConv final : public BlockPart {
 public:
  GatedShortConv(const ModelConfig& config, const std::string& name, DType dtype);
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const override;
  void list(nn::ParameterList& parameters) const override;
  bool weight_gradients_read_parameters() const override { return true; }

 private:
  nn::Linear in_;
  CausalConv conv_;
  nn::Linear out_;
};

/// The layer of Gated DeltaNet (Yang, Kautz and Hatamizadeh, arXiv:2412.06464) as in Qwen3.5 and, by key head, in Qwen3-Next: projections,
/// convolution, gated delta rule, norm of each head, gate, projection. In generation the states of the rule are state 1 of the block.
class GatedDeltaNet final : public BlockPart {
 public:
  GatedDeltaNet(const ModelConfig& config, const std::string& name, DType dtype);
  nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const override;
  void list(nn::ParameterList& parameters) const override;
  bool weight_gradients_read_parameters() const override { return true; }

 private:
  /// The projections of the input: queries, keys and values [B, T, 2 J K + H V], gates z [B, T, H V], rates b and decays a [B, T, H].
  struct Projected {
    nn::Variable qkv, z, b, a;
  };
  Projected projected(const nn::Variable& x_BTC, const nn::Context& context) const;
  nn::Variable ruled(const nn::Variable& qkv, const Projected& x, const nn::Context& context) const;

  DeltaNetConfig config_;
  std::optional<nn::Linear> qkv_, z_, b_, a_;  // if the projections are by key head, the next two are set instead
  std::optional<nn::Linear> qkvz_, ba_;
  CausalConv conv_;
  std::shared_ptr<nn::Parameter> dt_bias_, a_log_;
  nn::RmsNorm norm_;
  nn::Linear out_;
};

}  // namespace spillway::models
