// Holds what travels from block to block of a decoder beside the residual x[B, T, C], joined to it as further channels: the embedding, if
// blocks project it (layer_input.h), and the keys and values of layers whose keys later layers share. Blocks so remain a list, of which
// each needs only the output of the one before, wherever it runs. Pure functions. Only decoder.cc uses this header.
#pragma once
#include <array>

#include "models/families/model_config.h"
#include "nn/key_value_cache.h"

namespace spillway::models {

struct Travelling {
  nn::Variable x_BTC, embedded_BTC;
  std::array<nn::KeysAndValues, 2> shared;  // those of the layers without (0) and with a window (1), [B, T, Hkv, D], rotated
};

class DecoderStream {
 public:
  explicit DecoderStream(const ModelConfig& config);
  /// Splits the input of a layer.
  Travelling split(const nn::Variable& input, i64 layer) const;
  /// Returns the input of a layer, or of the head (`layer` is the number of layers), which reads x alone.
  nn::Variable joined(const Travelling& parts, i64 layer) const;
  /// Returns whether later layers share the keys of this layer.
  bool keeps_keys(i64 layer) const { return kept_[0].layer == layer || kept_[1].layer == layer; }

 private:
  struct Kept {
    i64 layer = -1, heads = 0, head_dim = 0;  // the layer whose keys are shared, or -1
  };
  // Returns whether the kept keys are part of the input of a layer.
  bool carries(const Kept& kept, i64 layer) const { return kept.layer >= 0 && kept.layer < layer && layer < layers_; }

  i64 layers_, width_;
  bool embedded_;
  std::array<Kept, 2> kept_;
};

}  // namespace spillway::models
