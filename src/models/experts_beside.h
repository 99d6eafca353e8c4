// A mixture of experts beside the MLP of a block, as in Gemma 4 26B-A4B. Both read the attended residual, each through a norm of its own,
// and the sum of their normed results goes on. The router reads the residual itself, normalised without a gain and scaled by channel; it
// chooses by the softmax, and each expert's weight is multiplied by a number of that expert. Only decoder.cc uses this header.
#pragma once
#include "models/expert_mlps.h"

namespace spillway::models {

class ExpertsBeside {
 public:
  /// `name` is that of the block.
  ExpertsBeside(const ModelConfig& config, const std::string& name, DType dtype);
  /// Returns norm(mlp) + norm(experts(norm(x))) for the MLP's result and the residual x, all [B, T, C].
  nn::Variable operator()(const nn::Variable& mlp_BTC, const nn::Variable& x_BTC, const nn::Context& context) const;
  void list(nn::ParameterList& parameters) const;

 private:
  i64 chosen_;
  double norm_eps_;
  nn::RmsNorm after_mlp_, before_experts_, after_experts_;
  nn::Linear router_;
  std::shared_ptr<nn::Parameter> channel_scale_C_, expert_scale_E_;
  ExpertMlps mlps_;
};

}  // namespace spillway::models
