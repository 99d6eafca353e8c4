// Maps a model to one of llama.cpp's architectures and its parameters to tensors of a GGUF file:
// names, stacked experts, the order of rows, offsets added to gains. A model that llama.cpp
// would compute differently is refused with an error that names the difference. Pure functions.
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
  std::vector<const nn::Parameter*> parts;  // the parameters, all of one shape; if there are several, as for experts, they are stacked
  Order order = Order::as_it_is;            // interleaved: in each head, row i of the first half is followed by row i of the second half
  double added = 0, factor = 1;             // each number x of the parameters is written as (x + added) * factor
  bool always_f32 = false;

  /// Returns the extents in ggml's order, the fastest-varying first.
  std::vector<i64> extents() const;
};

/// Returns the name of llama.cpp's architecture, such as "llama". Throws Error(usage),
/// "[export] --format gguf: expected …, got …", if llama.cpp cannot compute the model exactly.
const char* gguf_architecture(const ModelConfig& config);

/// Returns the tensors of the GGUF file in the model's order, for a model that gguf_architecture() accepts.
std::vector<GgufPart> gguf_parts(const ModelConfig& config, const nn::Sequential& model);

/// Returns the number of layers of a repeated pattern in which all layers but the
/// last have an attention window, or 0 if the layers do not repeat such a pattern.
i64 gguf_window_period(const ModelConfig& config);

/// Returns the divisors of the rotary frequencies that the file stores (for rope_type llama3); an empty list if it stores none.
std::vector<float> gguf_rope_factors(const ModelConfig& config);

}  // namespace spillway::models
