// The MLPs of a layer's experts, one set of parameters for each expert, so that an unused expert costs nothing and each can lie elsewhere.
// Only decoder_experts.cc and experts_beside.cc use this header. Shape letters: N = tokens, C = width, E = experts, K = experts per token.
#pragma once
#include "models/families/style.h"
#include "nn/layers.h"
#include "ops/experts/experts.h"

namespace spillway::models {

class ExpertMlps {
 public:
  /// `mixture` is the name of the mixture. A folder has a tensor for each expert, or stacks them (stacked_experts.h); the style of the
  /// family (DecoderStyle::ExpertNames) says in which form they are exported.
  ExpertMlps(const ModelConfig& config, const std::string& mixture, DType dtype);
  /// Returns the weighted sums [N, C] of the chosen experts' results for the tokens x[N, C].
  nn::Variable operator()(const nn::Variable& x_NC, const ops::Routed& routed, const nn::Context& context) const;
  void list(nn::ParameterList& parameters) const;

 private:
  i64 chosen_;
  bool gelu_gate_, biased_;
  std::optional<kernels::GluClamp> clamp_;
  std::vector<nn::Linear> gate_, up_, down_;  // one entry for each expert
};

}  // namespace spillway::models
