// What a Hugging Face config.json says about a model, checked. Read by the command line, the planner and models::build; written beside
// exported weights so that any tool loads them. A value: thread-safe. A config.json is an untrusted input: every key is checked for type
// and range, and a feature that would change the numbers but is not built here is refused by its name, never ignored.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace spillway::models {

enum class Family { gpt2, llama, cifar_net };

/// Of GPT-2's MLP (Llama's is always SwiGLU).
enum class Activation { gelu_tanh, gelu_erf, relu };

/// `rope_type: llama3`: wavelengths beyond original_positions / low_freq_factor are stretched by `factor`, those below
/// original_positions / high_freq_factor are kept, those between are blended.
struct RopeScaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  i64 original_positions = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  Family family = Family::gpt2;
  i64 layers = 0, width = 0, heads = 0;
  i64 kv_heads = 0;                                  // divides heads; GPT-2: heads
  i64 head_dim = 0;                                  // GPT-2: width / heads
  i64 mlp_width = 0, positions = 0, vocabulary = 0;  // of images: 1, and the classes
  bool tied_head = true;                             // the head's weight is the token embedding
  double norm_eps = 1e-5, initializer_range = 0.02;
  double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;  // shares dropped in training, [0, 1)
  std::optional<i64> begin_token, pad_token;
  std::vector<i64> end_tokens;

  // GPT-2 only
  Activation activation = Activation::gelu_tanh;
  bool scale_attention = true;            // scores times 1/sqrt(head_dim)
  bool scale_attention_by_layer = false;  // and times 1/(layer + 1)

  // Llama only
  bool attention_bias = false, mlp_bias = false;
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling;

  bool operator==(const ModelConfig&) const = default;
  bool reads_images() const { return family == Family::cifar_net; }
};

/// Throws Error(data) "[config] FILE: `KEY`: expected …, got …"; `file` is for the message only.
ModelConfig parse_config(std::string_view json, const std::string& file);
/// Of the folder's config.json. Throws Error(data), also when there is none.
ModelConfig read_config(const std::filesystem::path& folder);
/// A config.json that transformers loads and parse_config reads back equal; `weights` is the element type saved beside it.
std::string to_json(const ModelConfig& config, DType weights = DType::f32);

}  // namespace spillway::models
