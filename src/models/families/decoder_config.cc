// Reads and writes config.json of decoders with rotary positions. A missing key has the default of transformers' class for the model_type.
#include <fmt/format.h>

#include <algorithm>

#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// Returns the padding row of the token embedding, read as nn.Embedding reads its padding_idx: a negative index counts from the end.
// With an index outside the table transformers fails; this function then returns nothing, which means that there is no padding row.
std::optional<i64> padding_row_of(const ConfigObject& object, const ModelConfig& config) {
  const bool from_end = !config.pad_token && object.has("pad_token_id");
  const std::optional<i64> row = from_end ? config.vocabulary + object.whole("pad_token_id", -1, kMaxToken) : config.pad_token;
  return row && *row < config.vocabulary ? row : std::nullopt;
}

void require_activation(const ConfigObject& object, bool gelu) {
  const char* key = gelu && (object.has("hidden_activation") || !object.has("hidden_act")) ? "hidden_activation" : "hidden_act";
  const std::string name = object.text(key, gelu ? "gelu_pytorch_tanh" : "silu");
  if (gelu ? name == "gelu_pytorch_tanh" : name == "silu" || name == "swish") return;
  object.complain(key, gelu ? "gelu_pytorch_tanh (no other activation of the gated MLP is supported for this model_type)"
                            : "silu (no other activation of the gated MLP is supported for this model_type)");
}

bool read_bias(const DecoderFamily& family, const ConfigObject& object, const char* key, bool otherwise) {
  const bool bias = object.flag(key, otherwise);
  if (family.has_feature(key)) return bias;
  if (bias && !otherwise) object.complain(key, "false or no such key (this feature is not supported for this model_type)");
  return otherwise;
}

void read_sizes(const DecoderFamily& family, const ConfigObject& object, ModelConfig& config) {
  const DecoderDefaults& d = family.defaults;
  config.layers = object.whole("num_hidden_layers", 1, kMaxLayers);
  config.width = object.whole("hidden_size", 1, kMaxWidth);
  config.heads = object.whole("num_attention_heads", 1, kMaxWidth, d.heads);
  if (!d.head_dim && !object.has("head_dim")) require_divisible(object, "hidden_size", config.width, "num_attention_heads", config.heads);
  config.kv_heads = object.whole("num_key_value_heads", 1, config.heads, std::min(config.heads, d.kv_heads.value_or(config.heads)));
  require_divisible(object, "num_attention_heads", config.heads, "num_key_value_heads", config.kv_heads);
  config.head_dim = object.whole("head_dim", 2, kMaxWidth, d.head_dim.value_or(config.width / config.heads));
  if (config.head_dim % 2 != 0)
    object.complain("head_dim", fmt::format("an even head width (it is {}), because rotary position embeddings rotate pairs of elements",
                                            config.head_dim));
  config.mlp_width = object.whole("intermediate_size", 1, kMaxMlpWidth, d.mlp_width);
  config.positions = object.whole("max_position_embeddings", 1, kMaxPositions, d.positions);
  config.vocabulary = object.whole("vocab_size", 1, kMaxVocabulary, d.vocabulary);
}

}  // namespace

ModelConfig read_decoder(const DecoderFamily& family, const ConfigObject& object) {
  refuse_features(object, family.features);
  const DecoderDefaults& d = family.defaults;
  ModelConfig config;
  config.family = family.family;
  read_sizes(family, object, config);
  config.tied_head = object.flag("tie_word_embeddings", d.tied);
  config.norm_eps = object.real(family.style.eps_key, 0, 1, d.norm_eps, true);
  config.initializer_range = object.real("initializer_range", 0, 1, 0.02);
  config.attention_dropout = object.share("attention_dropout", d.dropout);
  require_activation(object, family.style.gelu_gate);
  config.attention_bias = config.output_bias = read_bias(family, object, "attention_bias", d.attention_bias);
  config.mlp_bias = read_bias(family, object, "mlp_bias", false);
  if (family.read) family.read(object, config);
  read_rope(family, object, config);
  std::vector<i64> end;
  for (const auto& token : d.end_tokens) {
    if (token) end.push_back(*token);
  }
  read_tokens(object, config, d.begin_token, std::move(end), d.pad_token);
  config.padding_row = padding_row_of(object, config);
  return config;
}

json decoder_json(const ModelConfig& c) {
  const DecoderFamily& family = decoder_family(c.family);
  json root = {{"architectures", {family.architecture}},
               {"model_type", family.type},
               {"num_hidden_layers", c.layers},
               {"hidden_size", c.width},
               {"num_attention_heads", c.heads},
               {"num_key_value_heads", c.kv_heads},
               {"head_dim", c.head_dim},
               {"intermediate_size", c.mlp_width},
               {"max_position_embeddings", c.positions},
               {family.style.eps_key, c.norm_eps},
               {"attention_dropout", c.attention_dropout}};
  family.style.gelu_gate ? root["hidden_activation"] = "gelu_pytorch_tanh" : root["hidden_act"] = "silu";
  if (family.has_feature("attention_bias")) root["attention_bias"] = c.attention_bias;
  if (family.has_feature("mlp_bias")) root["mlp_bias"] = c.mlp_bias;
  write_rope(family, c, root);
  if (family.write) family.write(c, root);
  return root;
}

}  // namespace spillway::models
