// Defines DecoderFamily: all that the program knows of one family of decoders and of no other. A family is one file of this folder, which
// defines a DecoderFamily, and one line in families.cc. Everything else works on ModelConfig and DecoderStyle and names no family, except
// the exporters to GGUF, which know what llama.cpp computes. Immutable.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "models/families/config_json.h"
#include "models/families/style.h"

namespace spillway::models {

/// Holds what transformers' configuration class of a family assumes for keys that config.json lacks.
struct DecoderDefaults {
  // if they are not set, config.json must have heads, mlp_width, positions and vocabulary, kv_heads = heads, and head_dim = width / heads
  std::optional<i64> heads, kv_heads, head_dim, mlp_width, positions, vocabulary;
  double norm_eps = 1e-6, theta = 10000;
  double rotary_share = 1;            // partial_rotary_factor
  std::optional<double> local_theta;  // set if windowed layers have rotary positions of their own: the base of those
  bool tied = false, attention_bias = false;
  double dropout = 0;  // attention_dropout
  std::optional<i64> begin_token, pad_token;
  std::array<std::optional<i64>, 3> end_tokens;
};

/// A published size of a family, as the keys of its config.json that differ from the family's defaults.
struct DecoderPreset {
  std::string_view name, config;
};

struct DecoderFamily {
  Family family;
  std::string_view type;          // `model_type` in config.json
  std::string_view architecture;  // the class of transformers, as config.json names it
  DecoderDefaults defaults;
  DecoderStyle style;
  // The keys of optional features that the family has, among those that refuse_features() refuses and the biases.
  std::array<std::string_view, 8> features{};
  /// Reads what only this family has, after the sizes, biases, norms and dropouts, and before the rotary positions and tokens. May be null.
  void (*read)(const ConfigObject& object, ModelConfig& config) = nullptr;
  /// Adds the keys that read() reads to `root`, which has all others. May be null.
  void (*write)(const ModelConfig& config, nlohmann::json& root) = nullptr;
  std::span<const DecoderPreset> presets = {};

  bool has_feature(std::string_view key) const;
};

/// Returns all families of decoders.
std::span<const DecoderFamily* const> decoder_families();
/// Returns the family of decoders with the `model_type`, or null.
const DecoderFamily* find_decoder(std::string_view type);
/// Returns a family of decoders. Throws Error(bug) for a family of other models.
const DecoderFamily& decoder_family(Family family);
/// Returns a list of the types of all families of decoders as text.
std::string decoder_types();

/// Reads config.json of a decoder. Throws Error(data).
ModelConfig read_decoder(const DecoderFamily& family, const ConfigObject& object);
/// Returns config.json of a decoder, except the keys that all language models share. transformers 4 and 5 read it.
nlohmann::json decoder_json(const ModelConfig& config);

}  // namespace spillway::models
