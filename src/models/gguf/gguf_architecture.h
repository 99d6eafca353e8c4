// Maps a model to one of llama.cpp's architectures and its parameters to tensors of a GGUF file: names, stacked experts, the order of rows,
// offsets added to gains. A model that llama.cpp would compute differently is refused; the message names the difference. Pure functions.
#pragma once
#include <string>
#include <vector>

#include "models/config.h"
#include "models/gguf/gguf_file.h"
#include "nn/module.h"

namespace spillway::models {

/// A tensor of the GGUF file and the parameters that it is made of.
struct GgufPart {
  enum class Order { as_it_is, interleaved, transposed };
  std::string name;
  std::vector<const nn::Parameter*> parts;  // all of the same shape; if there are several, as for experts, they are stacked
  Order order = Order::as_it_is;            // interleaved: row i of a head's first half is followed by row i of its second half
  double added = 0, factor = 1;             // each number x of the parameters is written as (x + added) * factor
  bool always_f32 = false;

  /// Returns the extents in ggml's order, the fastest-varying first.
  std::vector<i64> extents() const;
};

/// Returns the architecture's name, such as "llama". Throws Error(usage), "[export] --format gguf: expected …, got …", if llama.cpp cannot
/// compute the model exactly.
const char* gguf_architecture(const ModelConfig& config);

/// Returns the tensors in the model's order, for a model that gguf_architecture() accepts.
std::vector<GgufPart> gguf_parts(const ModelConfig& config, const nn::Sequential& model);

/// If the layers repeat a pattern in which all layers but the last have an attention window, returns the number of layers in the pattern;
/// otherwise 0.
i64 gguf_window_period(const ModelConfig& config);

/// Returns the divisors of the rotary frequencies, if the file stores them (rope_type llama3); otherwise an empty list.
std::vector<float> gguf_rope_factors(const ModelConfig& config);

}  // namespace spillway::models
