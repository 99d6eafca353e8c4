// The embeddings of each layer (Gemma 4 E2B and E4B, after Gemma 3n): a block adds to its output what a small gated projection makes of two
// embeddings of the tokens that are this layer's own, one looked up in a table of the layer, and one projected from the model's embedding.
// A folder stores the tables of all layers side by side in one tensor, and so the projections; here each layer has its own parameters,
// which rest and travel with its block. Only decoder.cc uses this header. Shape letters: B = batch size, T = positions, C = width, P =
// width of a layer's embedding.
#pragma once
#include "models/families/model_config.h"
#include "nn/layers.h"

namespace spillway::models {

class LayerInput {
 public:
  /// `projection_norm` [P] is the gain of a norm that all layers share. `name` is that of the block.
  LayerInput(const ModelConfig& config, const std::string& name, i64 layer, std::shared_ptr<nn::Parameter> projection_norm, DType dtype);
  /// Returns x[B, T, C] with the layer's addition. `embedded` is the model's embedding of the tokens, scaled as the first block reads it.
  nn::Variable operator()(const nn::Variable& x_BTC, const nn::Variable& embedded_BTC, const nn::Context& context) const;
  void list(nn::ParameterList& parameters) const;

 private:
  u8 layer_;
  double norm_eps_;
  nn::Embedding table_;
  nn::Linear projection_;
  std::shared_ptr<nn::Parameter> projection_norm_;
  nn::Linear gate_, out_;
  nn::RmsNorm after_;
};

}  // namespace spillway::models
