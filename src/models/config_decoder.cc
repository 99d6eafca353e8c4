// Reads config.json of decoders with rotary positions. A missing key has the default of transformers' class for the model_type.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

struct Type {
  std::string_view name;
  Family family;
};
constexpr std::array<Type, 10> kTypes{{{"llama", Family::llama},
                                       {"mistral", Family::mistral},
                                       {"qwen2", Family::qwen2},
                                       {"qwen3", Family::qwen3},
                                       {"qwen3_moe", Family::qwen3_moe},
                                       {"mixtral", Family::mixtral},
                                       {"gemma2", Family::gemma2},
                                       {"gemma3_text", Family::gemma3},
                                       {"phi3", Family::phi3},
                                       {"olmo2", Family::olmo2}}};

bool is_gemma(Family family) { return family == Family::gemma2 || family == Family::gemma3; }
bool is_qwen(Family family) { return family == Family::qwen2 || family == Family::qwen3; }
bool has_experts(Family family) { return family == Family::qwen3_moe || family == Family::mixtral; }

// The defaults of one family: what transformers' configuration class assumes for keys that config.json lacks.
struct Defaults {
  std::optional<i64> kv_heads, head_dim;  // if they are not set, kv_heads = heads and head_dim = width / heads
  double norm_eps = 1e-6, theta = 10000, query_scalar = 0, attention_softcap = 0, logit_softcap = 0;
  bool tied = false;
  std::optional<i64> window, begin_token, end_token, pad_token;
};
Defaults defaults_of(Family family) {
  Defaults d;
  switch (family) {
    case Family::mistral:
      d.kv_heads = 8, d.window = 4096, d.begin_token = 1, d.end_token = 2;
      break;
    case Family::qwen2:
      d.kv_heads = 32, d.window = 4096;
      break;
    case Family::qwen3:
      d.kv_heads = 32, d.head_dim = 128, d.window = 4096;
      break;
    case Family::qwen3_moe:
      d.kv_heads = 4, d.window = 4096;
      break;
    case Family::mixtral:
      d.kv_heads = 8, d.norm_eps = 1e-5, d.theta = 1e6, d.begin_token = 1, d.end_token = 2;
      break;
    case Family::gemma2:
      d.attention_softcap = 50, d.logit_softcap = 30;
      [[fallthrough]];
    case Family::gemma3:
      d.kv_heads = 4, d.head_dim = 256, d.tied = true, d.query_scalar = 256, d.window = 4096, d.begin_token = 2, d.end_token = 1;
      d.pad_token = 0;
      if (family == Family::gemma3) d.theta = 1e6;
      break;
    case Family::phi3:
      d.norm_eps = 1e-5, d.begin_token = 1, d.end_token = d.pad_token = 32000;
      break;
    case Family::olmo2:
      d.norm_eps = 1e-5, d.end_token = 50279, d.pad_token = 1;
      break;
    default:
      d.begin_token = 1, d.end_token = 2;
  }
  return d;
}

// Returns the keys of optional features that this program supports for the family. refuse_features() must not refuse them.
std::vector<std::string_view> known_features(Family family) {
  if (has_experts(family)) {
    std::vector<std::string_view> keys(expert_features().begin(), expert_features().end());
    keys.push_back("sliding_window");
    if (family == Family::qwen3_moe) keys.push_back("use_sliding_window");
    return keys;
  }
  if (is_gemma(family)) return {"sliding_window", "layer_types", "attn_logit_softcapping", "final_logit_softcapping"};
  if (is_qwen(family)) return {"sliding_window", "layer_types", "use_sliding_window"};
  if (family == Family::mistral) return {"sliding_window"};
  if (family == Family::phi3) return {"sliding_window", "partial_rotary_factor"};
  return {};
}

// Returns the attention window in positions, or 0 if there is none.
i64 window_of(const ConfigObject& object, Family family, const Defaults& d) {
  if ((is_qwen(family) || family == Family::qwen3_moe) && !object.flag("use_sliding_window", false)) return 0;
  if (!object.object().contains("sliding_window")) return d.window.value_or(0);
  return object.has("sliding_window") ? object.whole("sliding_window", 1, kMaxPositions) : 0;
}

// Returns whether a layer has a window according to the family's rule, for configurations without `layer_types`.
bool windowed_by_rule(const ConfigObject& object, Family family, i64 layer) {
  if (family == Family::gemma2) return layer % 2 == 0;
  if (family == Family::gemma3) {
    const char* key = object.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
    return (layer + 1) % object.whole(key, 1, kMaxLayers, 6) != 0;
  }
  if (is_qwen(family)) return layer >= object.whole("max_window_layers", 0, kMaxLayers, 28);
  return true;
}

void read_windows(const ConfigObject& object, ModelConfig& config, const Defaults& d) {
  const i64 window = window_of(object, config.family, d);
  const json* types = object.find("layer_types");
  const auto layers = static_cast<size_t>(config.layers);
  if (types && (!types->is_array() || types->size() != layers))
    object.complain("layer_types", fmt::format("a list with one entry for each of the {} layers", layers));
  std::vector<bool> windowed(layers);
  for (size_t i = 0; i < layers; ++i) {
    windowed[i] = types ? (*types)[i] == "sliding_attention" : windowed_by_rule(object, config.family, static_cast<i64>(i));
    if (types && !windowed[i] && (*types)[i] != "full_attention")
      object.complain("layer_types", "full_attention or sliding_attention for each layer (no other kind is supported)");
    if (types && windowed[i] && window == 0)
      object.complain("sliding_window", "the size of the attention window, because layer_types contains sliding_attention");
  }
  if (window == 0 || std::ranges::find(windowed, true) == windowed.end()) return;
  config.window = window;
  config.windowed = std::move(windowed);
}

// Returns the padding row of the token embedding, read as nn.Embedding reads its padding_idx: a negative index counts from the end.
// With an index outside the table transformers fails; this function then returns nothing, which means that there is no padding row.
std::optional<i64> padding_row_of(const ConfigObject& object, const ModelConfig& config) {
  const bool from_end = !config.pad_token && object.has("pad_token_id");
  const std::optional<i64> row = from_end ? config.vocabulary + object.whole("pad_token_id", -1, kMaxToken) : config.pad_token;
  return row && *row < config.vocabulary ? row : std::nullopt;
}

void require_activation(const ConfigObject& object, Family family) {
  const bool gemma = is_gemma(family);
  const char* key = gemma && (object.has("hidden_activation") || !object.has("hidden_act")) ? "hidden_activation" : "hidden_act";
  const std::string name = object.text(key, gemma ? "gelu_pytorch_tanh" : "silu");
  if (gemma ? name == "gelu_pytorch_tanh" : name == "silu" || name == "swish") return;
  object.complain(key, gemma ? "gelu_pytorch_tanh (no other activation of the gated MLP is supported for this model_type)"
                             : "silu (no other activation of the gated MLP is supported for this model_type)");
}

// Throws Error(data) for Phi-3's dropout rates of the embedding and the residuals,
// because the decoders of this program have no dropout in these places.
void refuse_dropout(const ConfigObject& object) {
  for (const char* key : {"embd_pdrop", "resid_pdrop"}) {
    if (object.share(key, 0) != 0) object.complain(key, "0 (dropout in this place is not supported)");
  }
}

}  // namespace

std::optional<Family> decoder_family(std::string_view type) {
  const auto found = std::ranges::find(kTypes, type, &Type::name);
  return found == kTypes.end() ? std::nullopt : std::optional(found->family);
}

std::string_view decoder_type(Family family) { return std::ranges::find(kTypes, family, &Type::family)->name; }

std::string decoder_types() {
  std::string all;
  for (const Type& type : kTypes) all += (all.empty() ? "" : ", ") + std::string(type.name);
  return all;
}

ModelConfig parse_decoder(Family family, const ConfigObject& object) {
  refuse_features(object, known_features(family));
  const Defaults d = defaults_of(family);
  ModelConfig config;
  config.family = family;
  config.layers = object.whole("num_hidden_layers", 1, kMaxLayers);
  config.width = object.whole("hidden_size", 1, kMaxWidth);
  config.heads = object.whole("num_attention_heads", 1, kMaxWidth);
  if (!d.head_dim && !object.has("head_dim")) require_divisible(object, "hidden_size", config.width, "num_attention_heads", config.heads);
  config.kv_heads = object.whole("num_key_value_heads", 1, config.heads, std::min(config.heads, d.kv_heads.value_or(config.heads)));
  require_divisible(object, "num_attention_heads", config.heads, "num_key_value_heads", config.kv_heads);
  config.head_dim = object.whole("head_dim", 2, kMaxWidth, d.head_dim.value_or(config.width / config.heads));
  if (config.head_dim % 2 != 0)
    object.complain("head_dim", fmt::format("an even head width (it is {}), because rotary position embeddings rotate pairs of elements",
                                            config.head_dim));
  config.mlp_width = object.whole("intermediate_size", 1, kMaxMlpWidth);
  config.positions = object.whole("max_position_embeddings", 1, kMaxPositions);
  config.vocabulary = object.whole("vocab_size", 1, kMaxVocabulary);
  config.tied_head = object.flag("tie_word_embeddings", d.tied);
  config.norm_eps = object.real("rms_norm_eps", 0, 1, d.norm_eps, true);
  config.initializer_range = object.real("initializer_range", 0, 1, 0.02);
  config.attention_dropout = object.share("attention_dropout", 0);
  require_activation(object, family);
  if (family == Family::phi3) refuse_dropout(object);
  config.attention_bias = family == Family::qwen2 || object.flag("attention_bias", false);
  if (config.attention_bias && (family == Family::phi3 || family == Family::mistral || family == Family::mixtral))
    object.complain("attention_bias", "false or no such key (this feature is not supported for this model_type)");
  config.mlp_bias = object.flag("mlp_bias", false);
  if (config.mlp_bias && family != Family::llama)
    object.complain("mlp_bias", "false or no such key (this feature is not supported for this model_type)");
  read_windows(object, config, d);
  if (has_experts(family)) config.experts = read_experts(object, config);
  if (is_gemma(family)) {
    config.query_scalar = object.real("query_pre_attn_scalar", 0, 1e6, d.query_scalar, true);
    const auto cap = [&](const char* key, double otherwise) {
      if (!object.object().contains(key)) return otherwise;
      return object.has(key) ? object.real(key, 0, 1e6, {}, true) : 0;
    };
    config.attention_softcap = cap("attn_logit_softcapping", d.attention_softcap);
    config.logit_softcap = cap("final_logit_softcapping", d.logit_softcap);
  }
  read_rope(object, config, d.theta);
  read_tokens(object, config, d.begin_token, d.end_token, d.pad_token);
  config.padding_row = padding_row_of(object, config);
  return config;
}

}  // namespace spillway::models
