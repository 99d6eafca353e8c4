#include "models/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "data/safetensors/folder_checksums.h"
#include "models/families/config_parts.h"
#include "models/image_families.h"

namespace spillway::models {
namespace {

using nlohmann::json;

constexpr i64 kMaxConfigBytes = 16 * kMiB;

Activation activation_of(const ConfigObject& object) {
  const std::string name = object.text("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu_erf;
  if (name == "relu") return Activation::relu;
  object.complain("activation_function", "one of gelu_new, gelu_pytorch_tanh, gelu, relu");
}

ModelConfig parse_gpt2(const ConfigObject& object) {
  refuse_features(object);
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
  read_tokens(object, config, 50256, {50256});
  return config;
}

// Models of several parts whose language model, in `text_config`, is of a known family. The folder's other tensors are left as they are.
struct Whole {
  std::string_view type;
  const char* text_type;  // the type of the language model if text_config does not name it
  bool tied;              // the default of the outer tie_word_embeddings, which governs
};
constexpr std::array<Whole, 5> kWholes{{{"gemma3", "gemma3_text", true},
                                        {"gemma4", "gemma4_text", true},
                                        {"mistral3", "mistral", true},
                                        {"qwen3_5", "qwen3_5_text", false},
                                        {"qwen3_5_moe", "qwen3_5_moe_text", false}}};

const Whole* find_whole(std::string_view type) {
  const auto* found = std::ranges::find(kWholes, type, &Whole::type);
  return found == kWholes.end() ? nullptr : found;
}

std::string whole_types() {
  std::string all;
  for (const Whole& whole : kWholes) all += ", " + std::string(whole.type);
  return all;
}

[[noreturn]] void refuse_type(const ConfigObject& object) {
  object.complain("model_type",
                  fmt::format("one of the supported model types: gpt2, {}{}, {}{}", decoder_types(), whole_types(), image_types(),
                              object.has("auto_map") ? " (the Python code that `auto_map` names is never run)" : ""));
}

ModelConfig parse_text_part(const Whole& whole, const ConfigObject& object, const std::string& file) {
  const json* part = object.find("text_config");
  if (!part || !part->is_object()) object.complain("text_config", "an object, the configuration of the language model");
  json text = *part;
  text["tie_word_embeddings"] = object.flag("tie_word_embeddings", whole.tied);
  const ConfigObject inner(text, file, "text_config.");
  const DecoderFamily* family = find_decoder(inner.text("model_type", whole.text_type));
  if (!family) inner.complain("model_type", "one of the supported language models: " + decoder_types());
  return read_decoder(*family, inner);
}

}  // namespace

ModelConfig parse_config(std::string_view text, const std::string& file) {
  const json root = parse_object(text, file, "config");
  const ConfigObject object(root, file);
  const std::string type = object.text("model_type");
  if (type == "gpt2") return parse_gpt2(object);
  if (const auto family = image_family(type)) return parse_image_model(*family, object);
  if (const DecoderFamily* family = find_decoder(type)) return read_decoder(*family, object);
  if (const Whole* whole = find_whole(type)) return parse_text_part(*whole, object, file);
  refuse_type(object);
}

std::string config_text(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) {
    throw Error(ErrorCode::data, fmt::format("[config] {}: expected a Hugging Face model folder with a config.json, got: {}", path.string(),
                                             error.message()));
  }
  if (bytes > static_cast<u64>(kMaxConfigBytes)) {
    throw Error(
        ErrorCode::data,
        fmt::format(
            "[config] {}: expected a config.json of at most 16 MiB, got {} bytes: check that this file is the model's configuration",
            path.string(), bytes));
  }
  return data::read_checked_text(data::FolderChecksums::of(folder), path);
}

ModelConfig read_config(const std::filesystem::path& folder) {
  return parse_config(config_text(folder), (folder / "config.json").string());
}

std::string type_of_whole(const std::filesystem::path& folder) {
  const std::string file = (folder / "config.json").string();
  const json root = parse_object(config_text(folder), file, "config");
  const std::string type = ConfigObject(root, file).text("model_type");
  return find_whole(type) ? type : "";
}

}  // namespace spillway::models
