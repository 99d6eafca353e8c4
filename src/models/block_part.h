// Defines BlockPart, a part of a decoder's block: what mixes the positions (attention, a state-space layer, a convolution), or the MLP.
// Only decoder*.cc use this header. Shape letters: B = batch size, T = positions, C = width.
#pragma once
#include "nn/layers.h"

namespace spillway::models {

class BlockPart {
 public:
  virtual ~BlockPart() = default;
  /// Returns what the part computes of x, plus the residual if that has a value.
  virtual nn::Variable operator()(const nn::Variable& residual_BTC, const nn::Variable& x_BTC, const nn::Context& context) const = 0;
  /// Adds the part's parameters in an order that is always the same.
  virtual void list(nn::ParameterList& parameters) const = 0;
  /// As in nn::Module.
  virtual bool weight_gradients_read_parameters() const { return false; }
};

}  // namespace spillway::models
