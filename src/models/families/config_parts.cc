#include "models/families/config_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::models {
namespace {

using nlohmann::json;

// A key of config.json that may be ignored if it is absent, null or equal to
// `harmless`. Any other value asks for a feature that is not implemented.
struct Feature {
  const char* key;
  json harmless;
};

const std::vector<Feature>& features() {
  static const std::vector<Feature> all{
      {"add_cross_attention", false},
      {"is_encoder_decoder", false},
      {"sliding_window", nullptr},
      {"use_sliding_window", false},
      {"attention_chunk_size", nullptr},
      {"quantization_config", nullptr},
      {"partial_rotary_factor", 1.0},
      {"pruned_heads", json::object()},
      {"pretraining_tp", 1},
      {"attn_logit_softcapping", nullptr},
      {"final_logit_softcapping", nullptr},
      {"use_qk_norm", false},
      {"use_bidirectional_attention", false},
      {"num_experts", nullptr},
      {"num_local_experts", nullptr},
  };
  return all;
}

// Reads a token id. A value of -1 means "none", as older tools wrote it.
std::optional<i64> token(const ConfigObject& object, const char* key, std::optional<i64> fallback) {
  if (!object.object().contains(key)) return fallback;
  const i64 id = object.whole(key, -1, kMaxToken, -1);
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace

void refuse_features(const ConfigObject& object, std::span<const std::string_view> known) {
  for (const Feature& feature : features()) {
    const json* value = object.find(feature.key);
    if (!value || *value == feature.harmless || std::ranges::find(known, feature.key) != known.end()) continue;
    object.complain(feature.key, fmt::format("{} or no such key (this feature is not supported)", feature.harmless.dump()));
  }
  const json* layers = object.find("layer_types");
  if (!layers || std::ranges::find(known, "layer_types") != known.end()) return;
  for (const json& layer : *layers) {
    if (layer != "full_attention")
      object.complain("layer_types", "\"full_attention\" for every layer (no other kind is supported for this model_type)");
  }
}

void read_tokens(const ConfigObject& object, ModelConfig& config, std::optional<i64> begin_default, std::vector<i64> end_default,
                 std::optional<i64> pad_default) {
  config.begin_token = token(object, "bos_token_id", begin_default);
  config.pad_token = token(object, "pad_token_id", pad_default);
  const json* end = object.find("eos_token_id");
  if (!end || !end->is_array()) {
    if (!object.object().contains("eos_token_id")) {
      config.end_tokens = std::move(end_default);
    } else if (const auto id = token(object, "eos_token_id", {})) {
      config.end_tokens = {*id};
    }
    return;
  }
  for (const json& id : *end) {
    if (!id.is_number_integer() || id < 0 || id > kMaxToken) object.complain("eos_token_id", "one token id or a list of token ids");
    config.end_tokens.push_back(id.get<i64>());
  }
}

i64 window_of(const ConfigObject& object, std::optional<i64> otherwise) {
  if (!object.object().contains("sliding_window")) return otherwise.value_or(0);
  return object.has("sliding_window") ? object.whole("sliding_window", 1, kMaxPositions) : 0;
}

i64 window_period(const ConfigObject& object, i64 otherwise) {
  const char* key = object.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  return object.whole(key, 1, kMaxLayers, otherwise);
}

void read_windows(const ConfigObject& object, ModelConfig& config, i64 window, const std::function<bool(i64)>& rule) {
  const json* types = object.find("layer_types");
  const auto layers = static_cast<size_t>(config.layers);
  if (types && (!types->is_array() || types->size() != layers))
    object.complain("layer_types", fmt::format("a list with one entry for each of the {} layers", layers));
  std::vector<bool> windowed(layers);
  for (size_t i = 0; i < layers; ++i) {
    windowed[i] = types ? (*types)[i] == "sliding_attention" : rule(static_cast<i64>(i));
    if (types && !windowed[i] && (*types)[i] != "full_attention")
      object.complain("layer_types", "full_attention or sliding_attention for each layer (no other kind is supported)");
    if (types && windowed[i] && window == 0)
      object.complain("sliding_window", "the size of the attention window, because layer_types contains sliding_attention");
  }
  if (window == 0 || std::ranges::find(windowed, true) == windowed.end()) return;
  config.window = window;
  config.windowed = std::move(windowed);
}

void write_windows(const ModelConfig& c, json& root, std::optional<i64> otherwise) {
  root["sliding_window"] = c.window > 0 ? json(c.window) : otherwise ? json(*otherwise) : json(nullptr);
  for (i64 i = 0; i < c.layers; ++i) root["layer_types"].push_back(c.is_windowed(i) ? "sliding_attention" : "full_attention");
}

void require_divisible(const ConfigObject& object, const char* key, i64 value, const char* by_key, i64 by) {
  if (value % by != 0) object.complain(key, fmt::format("a multiple of `{}` ({})", by_key, by));
}

}  // namespace spillway::models
