#include "models/config.h"

#include <fmt/format.h>

#include <iterator>

#include "base/error.h"
#include "data/folder_checksums.h"
#include "models/config_json.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// Ceilings far above any published model, low enough that no product of them overflows 64 bits.
constexpr i64 kMaxLayers = 8192, kMaxWidth = i64{1} << 20, kMaxMlpWidth = i64{1} << 22, kMaxVocabulary = i64{1} << 24;
constexpr i64 kMaxPositions = i64{1} << 27, kMaxToken = (i64{1} << 31) - 1, kMaxConfigBytes = 16 * kMiB;

// A key that is harmless while it is absent, null or the given value. Another value is a feature we lack.
struct Feature {
  const char* key;
  json harmless;
};

const std::vector<Feature>& refused_features() {
  static const std::vector<Feature> features{
      {"add_cross_attention", false},
      {"is_encoder_decoder", false},
      {"sliding_window", nullptr},
      {"use_sliding_window", false},
      {"attention_chunk_size", nullptr},
      {"quantization_config", nullptr},
      {"auto_map", nullptr},
      {"partial_rotary_factor", 1.0},
      {"pruned_heads", json::object()},
      {"pretraining_tp", 1},
      {"attn_logit_softcapping", nullptr},
      {"final_logit_softcapping", nullptr},
      {"use_qk_norm", false},
      {"num_experts", nullptr},
      {"num_local_experts", nullptr},
  };
  return features;
}

void refuse_features(const ConfigObject& object) {
  for (const Feature& feature : refused_features()) {
    const json* value = object.find(feature.key);
    if (!value || *value == feature.harmless) continue;
    object.complain(feature.key, fmt::format("{} or no such key: this feature is not built", feature.harmless.dump()));
  }
  const json* layers = object.find("layer_types");
  if (!layers) return;
  for (const json& layer : *layers) {
    if (layer != "full_attention") object.complain("layer_types", "\"full_attention\" throughout: no other kind of layer is built");
  }
}

// -1 was once written for "none".
std::optional<i64> token(const ConfigObject& object, const char* key, std::optional<i64> fallback) {
  if (!object.object().contains(key)) return fallback;
  const i64 id = object.whole(key, -1, kMaxToken, -1);
  return id < 0 ? std::nullopt : std::optional(id);
}

void read_tokens(const ConfigObject& object, ModelConfig& config, i64 begin_default, i64 end_default) {
  config.begin_token = token(object, "bos_token_id", begin_default);
  config.pad_token = token(object, "pad_token_id", {});
  const json* end = object.find("eos_token_id");
  if (!end || !end->is_array()) {
    if (const auto id = token(object, "eos_token_id", end_default)) config.end_tokens = {*id};
    return;
  }
  for (const json& id : *end) {
    if (!id.is_number_integer() || id < 0 || id > kMaxToken) object.complain("eos_token_id", "token ids");
    config.end_tokens.push_back(id.get<i64>());
  }
}

void require_divisible(const ConfigObject& object, const char* key, i64 value, const char* by_key, i64 by) {
  if (value % by != 0) object.complain(key, fmt::format("a multiple of `{}` ({})", by_key, by));
}

Activation activation_of(const ConfigObject& object) {
  const std::string name = object.text("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu_erf;
  if (name == "relu") return Activation::relu;
  object.complain("activation_function", "one of gelu_new, gelu_pytorch_tanh, gelu, relu");
}

ModelConfig parse_gpt2(const ConfigObject& object) {
  ModelConfig config;
  config.family = Family::gpt2;
  config.layers = object.whole("n_layer", 1, kMaxLayers);
  config.width = object.whole("n_embd", 1, kMaxWidth);
  config.heads = config.kv_heads = object.whole("n_head", 1, kMaxWidth);
  require_divisible(object, "n_embd", config.width, "n_head", config.heads);
  config.head_dim = config.width / config.heads;
  config.positions = object.whole("n_positions", 1, kMaxPositions);
  config.vocabulary = object.whole("vocab_size", 1, kMaxVocabulary);
  config.mlp_width = object.whole("n_inner", 1, kMaxMlpWidth, 4 * config.width);
  config.tied_head = object.flag("tie_word_embeddings", true);
  config.norm_eps = object.real("layer_norm_epsilon", 0, 1, 1e-5, true);
  config.initializer_range = object.real("initializer_range", 0, 1, 0.02);
  config.embedding_dropout = object.share("embd_pdrop", 0.1);
  config.residual_dropout = object.share("resid_pdrop", 0.1);
  config.attention_dropout = object.share("attn_pdrop", 0.1);
  config.activation = activation_of(object);
  config.scale_attention = object.flag("scale_attn_weights", true);
  config.scale_attention_by_layer = object.flag("scale_attn_by_inverse_layer_idx", false);
  read_tokens(object, config, 50256, 50256);
  return config;
}

// It has no shapes to choose: those that are written are those it has.
ModelConfig parse_cifar_net(const ConfigObject& object) {
  ModelConfig config;
  config.family = Family::cifar_net;
  config.positions = 1;
  config.vocabulary = object.whole("num_labels", 10, 10);
  static_cast<void>(object.whole("image_size", 32, 32));
  static_cast<void>(object.whole("num_channels", 3, 3));
  return config;
}

// What one of the objects `rope_parameters` (new style) and `rope_scaling` (old style) says.
struct Rope {
  std::optional<double> theta;
  std::optional<RopeScaling> scaling;
};

std::optional<double> theta_of(const ConfigObject& object) {
  if (!object.has("rope_theta")) return {};
  return object.real("rope_theta", 1, 1e15, {}, true);
}

RopeScaling parse_llama3_scaling(const ConfigObject& object) {
  RopeScaling scaling;
  scaling.factor = object.real("factor", 1, 1e6);
  scaling.low_freq_factor = object.real("low_freq_factor", 0, 1e6, {}, true);
  scaling.high_freq_factor = object.real("high_freq_factor", scaling.low_freq_factor, 1e6, {}, true);
  scaling.original_positions = object.whole("original_max_position_embeddings", 1, kMaxPositions);
  return scaling;
}

Rope parse_rope(const ConfigObject& parent, const char* key) {
  const json& value = *parent.find(key);
  if (!value.is_object()) parent.complain(key, "an object");
  const ConfigObject object(value, parent.file(), std::string(key) + ".");
  const std::string type = object.text(object.has("rope_type") ? "rope_type" : "type", "default");
  if (type != "default" && type != "llama3")
    object.complain(object.has("rope_type") ? "rope_type" : "type", "default or llama3: no other kind is built");
  for (const auto& [name, entry] : value.items()) {
    const bool common = name == "rope_type" || name == "type" || name == "rope_theta" || (name == "partial_rotary_factor" && entry == 1.0);
    const bool scaling =
        name == "factor" || name == "low_freq_factor" || name == "high_freq_factor" || name == "original_max_position_embeddings";
    if (!entry.is_null() && !common && !(scaling && type == "llama3")) object.complain(name, "no such key with rope_type " + type);
  }
  return {theta_of(object), type == "llama3" ? std::optional(parse_llama3_scaling(object)) : std::nullopt};
}

// Either style, or both where they agree.
void read_rope(const ConfigObject& object, ModelConfig& config) {
  std::optional<double> theta = theta_of(object);
  std::optional<Rope> rope;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!object.has(key)) continue;
    const Rope said = parse_rope(object, key);
    if (rope && rope->scaling != said.scaling) object.complain(key, "the same as `rope_scaling` says");
    if (theta && said.theta && theta != said.theta) object.complain(key, fmt::format("the `rope_theta` {} named elsewhere", *theta));
    if (said.theta) theta = said.theta;
    rope = said;
  }
  config.rope_theta = theta.value_or(10000);
  if (rope) config.rope_scaling = rope->scaling;
}

ModelConfig parse_llama(const ConfigObject& object) {
  ModelConfig config;
  config.family = Family::llama;
  config.layers = object.whole("num_hidden_layers", 1, kMaxLayers);
  config.width = object.whole("hidden_size", 1, kMaxWidth);
  config.heads = object.whole("num_attention_heads", 1, kMaxWidth);
  require_divisible(object, "hidden_size", config.width, "num_attention_heads", config.heads);
  config.kv_heads = object.whole("num_key_value_heads", 1, config.heads, config.heads);
  require_divisible(object, "num_attention_heads", config.heads, "num_key_value_heads", config.kv_heads);
  config.head_dim = object.whole("head_dim", 2, kMaxWidth, config.width / config.heads);
  if (config.head_dim % 2 != 0)
    object.complain("head_dim", fmt::format("an even head width (it is {}): rotary positions turn pairs", config.head_dim));
  config.mlp_width = object.whole("intermediate_size", 1, kMaxMlpWidth);
  config.positions = object.whole("max_position_embeddings", 1, kMaxPositions);
  config.vocabulary = object.whole("vocab_size", 1, kMaxVocabulary);
  config.tied_head = object.flag("tie_word_embeddings", false);
  config.norm_eps = object.real("rms_norm_eps", 0, 1, 1e-6, true);
  config.initializer_range = object.real("initializer_range", 0, 1, 0.02);
  config.attention_dropout = object.share("attention_dropout", 0);
  const std::string activation = object.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") object.complain("hidden_act", "silu: no other gate is built");
  config.attention_bias = object.flag("attention_bias", false);
  config.mlp_bias = object.flag("mlp_bias", false);
  read_rope(object, config);
  read_tokens(object, config, 1, 2);
  return config;
}

}  // namespace

ModelConfig parse_config(std::string_view text, const std::string& file) {
  json root;
  try {
    root = json::parse(text);
  } catch (const json::exception& error) {
    throw Error(ErrorCode::data, fmt::format("[config] {}: expected JSON, got: {}", file, error.what()));
  }
  if (!root.is_object()) throw Error(ErrorCode::data, fmt::format("[config] {}: expected a JSON object, got {}", file, root.type_name()));
  const ConfigObject object(root, file);
  const std::string type = object.text("model_type");
  if (type != "gpt2" && type != "llama" && type != "cifar_net")
    object.complain("model_type", "one of gpt2, llama, cifar_net (the model types known)");
  refuse_features(object);
  if (type == "cifar_net") return parse_cifar_net(object);
  return type == "gpt2" ? parse_gpt2(object) : parse_llama(object);
}

ModelConfig read_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) {
    throw Error(ErrorCode::data, fmt::format("[config] {}: expected a Hugging Face model folder with a config.json, got: {}", path.string(),
                                             error.message()));
  }
  if (bytes > static_cast<u64>(kMaxConfigBytes)) {
    throw Error(ErrorCode::data,
                fmt::format("[config] {}: expected at most 16 MiB, got {} bytes: this is no config.json", path.string(), bytes));
  }
  const std::string text = data::read_checked_text(data::FolderChecksums::of(folder), path);
  return parse_config(text, path.string());
}

}  // namespace spillway::models
