#include "models/decoder_stream.h"

#include "ops/layout/shape.h"

namespace spillway::models {

using nn::Variable;

DecoderStream::DecoderStream(const ModelConfig& c) : layers_(c.layers), width_(c.width), embedded_(c.layer_embedding > 0) {
  for (i64 layer = 0; c.shared_key_layers > 0 && layer < c.layers - c.shared_key_layers; ++layer)
    kept_[c.is_windowed(layer) ? 1 : 0] = {layer, c.kv_heads_of(layer), c.head_dim_of(layer)};
}

Travelling DecoderStream::split(const Variable& input, i64 layer) const {
  Travelling parts;
  i64 at = 0;
  const auto next = [&](i64 channels) {
    at += channels;
    return at == channels && input.shape()[2] == channels ? input : ops::slice(input, 2, at - channels, at);
  };
  parts.x_BTC = next(width_);
  if (embedded_ && layer < layers_) parts.embedded_BTC = next(width_);
  for (size_t kind = 0; kind < 2; ++kind) {
    const Kept& kept = kept_[kind];
    if (!carries(kept, layer)) continue;
    const auto heads = [&] {
      return ops::reshape(next(kept.heads * kept.head_dim), {input.shape()[0], input.shape()[1], kept.heads, kept.head_dim});
    };
    parts.shared[kind].k = heads();
    parts.shared[kind].v = heads();
  }
  return parts;
}

Variable DecoderStream::joined(const Travelling& parts, i64 layer) const {
  std::vector<Variable> all{parts.x_BTC};
  if (embedded_ && layer < layers_) all.push_back(parts.embedded_BTC);
  for (size_t kind = 0; kind < 2; ++kind) {
    if (!carries(kept_[kind], layer)) continue;
    for (const Variable* x : {&parts.shared[kind].k, &parts.shared[kind].v}) {
      const Shape& s = x->shape();
      all.push_back(ops::reshape(*x, {s[0], s[1], s[2] * s[3]}));
    }
  }
  return all.size() == 1 ? parts.x_BTC : ops::concat(all, 2);
}

}  // namespace spillway::models
