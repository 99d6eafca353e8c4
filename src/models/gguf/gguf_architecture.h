// Which of llama.cpp's architectures a model is, and how its parameters lie there: names, stacked experts, the order of rows, what is added
// to a gain. A model whose numbers llama.cpp would not give is refused by what it differs in. Pure.
#pragma once
#include <string>
#include <vector>

#include "models/config.h"
#include "models/gguf/gguf_file.h"
#include "nn/module.h"

namespace spillway::models {

/// A tensor of the file, and what it is made of.
struct GgufPart {
  enum class Order { as_it_is, interleaved, transposed };
  std::string name;
  std::vector<const nn::Parameter*> parts;  // of one shape; several are stacked
  Order order = Order::as_it_is;            // interleaved: element i of a head's first half lies beside that of the second
  double added = 0, factor = 1;             // (x + added) factor is written
  bool always_f32 = false;

  /// The fastest first.
  std::vector<i64> extents() const;
};

/// "llama". Error(usage), "[export] --format gguf: expected …, got …".
const char* gguf_architecture(const ModelConfig& config);

/// In the model's order. Of a model that gguf_architecture() knows.
std::vector<GgufPart> gguf_parts(const ModelConfig& config, const nn::Sequential& model);

/// Layers of a window come in periods of which the last one has none: how long these are.
i64 gguf_window_period(const ModelConfig& config);

/// What each frequency of rotary positions is divided by, where the file says it so.
std::vector<float> gguf_rope_factors(const ModelConfig& config);

}  // namespace spillway::models
