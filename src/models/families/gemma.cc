// Gemma 2 (arXiv:2408.00118), Gemma 3 (arXiv:2503.19786) and Gemma 4, as transformers' gemma4 defines it.
#include <cmath>

#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// Returns a soft cap: a number above 0, 0 for null, or `otherwise` without the key.
double cap_of(const ConfigObject& object, const char* key, double otherwise) {
  if (!object.object().contains(key)) return otherwise;
  return object.has(key) ? object.real(key, 0, 1e6, {}, true) : 0;
}

void read_gemma(const ConfigObject& object, ModelConfig& config, double attention_cap, double logit_cap) {
  config.query_scalar = object.real("query_pre_attn_scalar", 0, 1e6, 256, true);
  config.attention_softcap = cap_of(object, "attn_logit_softcapping", attention_cap);
  config.logit_softcap = cap_of(object, "final_logit_softcapping", logit_cap);
}

void read_gemma2(const ConfigObject& object, ModelConfig& config) {
  read_windows(object, config, window_of(object, 4096), [](i64 layer) { return layer % 2 == 0; });
  read_gemma(object, config, 50, 30);
}

void read_gemma3(const ConfigObject& object, ModelConfig& config) {
  read_windows(object, config, window_of(object, 4096), [&](i64 layer) { return (layer + 1) % window_period(object, 6) != 0; });
  read_gemma(object, config, 0, 0);
}

// Returns a JSON integer if x is whole, because transformers 5 rejects 256.0 where it expects a whole number.
json whole_if_it_is(double x) { return x == std::floor(x) ? json(static_cast<i64>(x)) : json(x); }

void write_gemma(const ModelConfig& c, json& root) {
  const auto cap = [](double x) { return x > 0 ? json(x) : json(nullptr); };
  write_windows(c, root, 4096);
  root["query_pre_attn_scalar"] = whole_if_it_is(c.query_scalar);
  root["attn_logit_softcapping"] = cap(c.attention_softcap);
  root["final_logit_softcapping"] = cap(c.logit_softcap);
}

void write_gemma3(const ModelConfig& c, json& root) {
  write_gemma(c, root);
  i64 first_full = 0;
  while (first_full < c.layers && c.is_windowed(first_full)) ++first_full;
  root["sliding_window_pattern"] = first_full + 1;
  root["rope_local_base_freq"] = c.local_rope_theta.value();
}

// Reads per_layer_config, where transformers 5 keeps the heads of layers that differ from head_dim and num_key_value_heads.
void read_layers(const ConfigObject& object, const ModelConfig& config, FullAttention& full) {
  const json* layers = object.find("per_layer_config");
  if (layers == nullptr) return;
  const std::string expected =
      "an object whose entries are layers with full_attention, which all have the same head_dim and num_key_value_heads";
  if (!layers->is_object()) object.complain("per_layer_config", expected);
  std::optional<FullAttention> first;
  size_t used = 0;
  for (i64 layer = 0; layer < config.layers; ++layer) {
    FullAttention heads{.kv_heads = config.kv_heads, .head_dim = config.head_dim, .keys_are_values = full.keys_are_values};
    const auto entry = layers->find(std::to_string(layer));
    if (entry != layers->end()) {
      if (config.is_windowed(layer) || !entry->is_object()) object.complain("per_layer_config", expected);
      const ConfigObject inner(*entry, object.file(), "per_layer_config." + std::to_string(layer) + ".");
      heads.kv_heads = inner.whole("num_key_value_heads", 1, config.heads, heads.kv_heads);
      heads.head_dim = inner.whole("head_dim", 2, kMaxWidth, heads.head_dim);
      ++used;
    }
    if (config.is_windowed(layer)) continue;
    if (first && *first != heads) object.complain("per_layer_config", expected);
    first = heads;
  }
  if (layers->size() != used) object.complain("per_layer_config", expected);
  full = first.value();  // the last layer has no window
}

constexpr i64 kMaxSharingLayers = 255;  // the norm that all layers share numbers its uses in 8 bits

// Reads what Gemma 4 E2B and E4B have beside the others: embeddings of each layer, and layers at the end that share keys and values.
void read_small(const ConfigObject& object, ModelConfig& config) {
  config.layer_embedding = object.whole("hidden_size_per_layer_input", 0, kMaxWidth, 256);
  const i64 rows = config.layer_embedding > 0 ? object.whole("vocab_size_per_layer_input", 1, kMaxVocabulary, 262144) : config.vocabulary;
  if (rows != config.vocabulary)
    object.complain("vocab_size_per_layer_input", std::to_string(config.vocabulary) + ", the value of `vocab_size`");
  if (config.layer_embedding > 0 && config.layers > kMaxSharingLayers)
    object.complain("num_hidden_layers", "at most " + std::to_string(kMaxSharingLayers) + " layers that have embeddings of their own");
  config.shared_key_layers = object.whole("num_kv_shared_layers", 0, config.layers - 1, 0);
  config.wide_shared_mlp = object.flag("use_double_wide_mlp", false) && config.shared_key_layers > 0;
  for (i64 layer = config.layers - config.shared_key_layers; layer < config.layers; ++layer) {
    i64 from = config.layers - config.shared_key_layers - 1;
    while (from >= 0 && config.is_windowed(from) != config.is_windowed(layer)) --from;
    if (from < 0)
      object.complain("num_kv_shared_layers",
                      "a number that leaves a layer of each kind in layer_types before the layers that share its keys");
  }
}

void read_gemma4(const ConfigObject& object, ModelConfig& config) {
  if (object.flag("enable_moe_block", false)) {
    ExpertsConfig experts{.count = object.whole("num_experts", 1, kMaxExperts), .beside = true};
    experts.chosen = object.whole("top_k_experts", 1, experts.count);
    experts.width = object.whole("moe_intermediate_size", 1, kMaxMlpWidth);
    config.experts = experts;
  }
  read_windows(object, config, window_of(object, 512), [](i64 layer) { return (layer + 1) % 6 != 0; });
  if (config.is_windowed(config.layers - 1)) config.windowed.back() = false;  // as transformers does
  read_small(object, config);
  config.attention_multiplier = 1;
  config.logit_softcap = cap_of(object, "final_logit_softcapping", 0);
  FullAttention full;
  full.keys_are_values = object.flag("attention_k_eq_v", false);
  full.head_dim = object.whole("global_head_dim", 2, kMaxWidth, 512);
  full.kv_heads = config.kv_heads;
  if (full.keys_are_values) full.kv_heads = object.whole("num_global_key_value_heads", 1, config.heads, config.kv_heads);
  read_layers(object, config, full);
  if (full.head_dim % 2 != 0) object.complain("global_head_dim", "an even head width");
  require_divisible(object, "num_attention_heads", config.heads, "num_global_key_value_heads", full.kv_heads);
  config.full_attention = full;
  config.rope_scaling = RopeScaling{.factor = 1, .kind = RopeScaling::Kind::proportional};  // unless rope_parameters says otherwise
  config.rope_scaling->share = 0.25;
}

void write_gemma4(const ModelConfig& c, json& root) {
  write_windows(c, root, 512);
  const FullAttention& full = c.full_attention.value();
  root["final_logit_softcapping"] = c.logit_softcap > 0 ? json(c.logit_softcap) : json(nullptr);
  root["attention_k_eq_v"] = full.keys_are_values;
  root["global_head_dim"] = full.head_dim;
  root["num_global_key_value_heads"] = full.kv_heads;
  root["per_layer_config"] = json::object();
  for (i64 i = 0; i < c.layers; ++i) {
    if (!c.is_windowed(i))
      root["per_layer_config"][std::to_string(i)] = {{"head_dim", full.head_dim}, {"num_key_value_heads", full.kv_heads}};
  }
  root["hidden_size_per_layer_input"] = c.layer_embedding;
  root["vocab_size_per_layer_input"] = c.vocabulary;
  root["num_kv_shared_layers"] = c.shared_key_layers;
  root["use_double_wide_mlp"] = c.wide_shared_mlp;
  root["enable_moe_block"] = c.experts.has_value();
  if (c.experts) {
    root["num_experts"] = c.experts->count;
    root["top_k_experts"] = c.experts->chosen;
    root["moe_intermediate_size"] = c.experts->width;
  }
  root.erase("rope_scaling"), root.erase("rope_theta");
}

constexpr DecoderPreset kGemma4Presets[] = {
    {"gemma4-e2b",
     R"({"num_hidden_layers": 35, "hidden_size": 1536, "num_attention_heads": 8, "num_key_value_heads": 1, "intermediate_size": 6144,
         "vocab_size": 262144, "max_position_embeddings": 131072, "num_kv_shared_layers": 20, "use_double_wide_mlp": true,
         "final_logit_softcapping": 30.0, "layer_types": [
         "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
         "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
         "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
         "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
         "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
         "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
         "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]})"},
    {"gemma4-e4b",
     R"({"num_hidden_layers": 42, "hidden_size": 2560, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 10240,
         "vocab_size": 262144, "max_position_embeddings": 131072, "num_kv_shared_layers": 18, "final_logit_softcapping": 30.0})"},
    {"gemma4-26b-a4b",
     R"({"num_hidden_layers": 30, "hidden_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 2112,
         "vocab_size": 262144, "max_position_embeddings": 262144, "sliding_window": 1024, "attention_k_eq_v": true,
         "num_global_key_value_heads": 2, "hidden_size_per_layer_input": 0, "final_logit_softcapping": 30.0, "enable_moe_block": true,
         "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704})"},
    {"gemma4-31b",
     R"({"num_hidden_layers": 60, "hidden_size": 5376, "num_attention_heads": 32, "num_key_value_heads": 16, "intermediate_size": 21504,
         "vocab_size": 262144, "max_position_embeddings": 262144, "sliding_window": 1024, "attention_k_eq_v": true,
         "num_global_key_value_heads": 4, "hidden_size_per_layer_input": 0, "final_logit_softcapping": 30.0})"}};

constexpr DecoderStyle::Norms kGemmaNorms{.before_attention = "input_layernorm",
                                          .after_attention = "post_attention_layernorm",
                                          .before_mlp = "pre_feedforward_layernorm",
                                          .after_mlp = "post_feedforward_layernorm"};

}  // namespace

constinit const DecoderFamily kGemma2{
    .family = Family::gemma2,
    .type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .defaults = {.kv_heads = 4, .head_dim = 256, .tied = true, .begin_token = 2, .pad_token = 0, .end_tokens = {1}},
    .style = {.norms = kGemmaNorms, .gain_offset = 1, .gelu_gate = true, .scaled_embedding = true},
    .features = {"sliding_window", "layer_types", "attn_logit_softcapping", "final_logit_softcapping", "attention_bias"},
    .read = read_gemma2,
    .write = write_gemma};

constinit const DecoderFamily kGemma3{
    .family = Family::gemma3,
    .type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .defaults = {.heads = 8,
                 .kv_heads = 4,
                 .head_dim = 256,
                 .positions = 131072,
                 .vocabulary = 262208,
                 .theta = 1e6,
                 .local_theta = 1e4,
                 .tied = true,
                 .begin_token = 2,
                 .pad_token = 0,
                 .end_tokens = {1}},
    .style = {.qk_norm = DecoderStyle::QkNorm::head, .norms = kGemmaNorms, .gain_offset = 1, .gelu_gate = true, .scaled_embedding = true},
    .features = {"sliding_window", "layer_types", "attn_logit_softcapping", "final_logit_softcapping", "attention_bias"},
    .read = read_gemma3,
    .write = write_gemma3};

constinit const DecoderFamily kGemma4{
    .family = Family::gemma4,
    .type = "gemma4_text",
    .architecture = "Gemma4ForCausalLM",
    .defaults = {.kv_heads = 4,
                 .head_dim = 256,
                 .theta = 1e6,
                 .local_theta = 1e4,
                 .tied = true,
                 .begin_token = 2,
                 .pad_token = 0,
                 .end_tokens = {1}},
    .style = {.qk_norm = DecoderStyle::QkNorm::head,
              .norms = kGemmaNorms,
              .gelu_gate = true,
              .value_norm = true,
              .layer_scalar = true,
              .scaled_embedding = true,
              .experts = {.stacked = true}},
    .features = {"sliding_window", "layer_types", "final_logit_softcapping", "attention_bias", "num_experts", "proportional"},
    .read = read_gemma4,
    .write = write_gemma4,
    .presets = kGemma4Presets};

}  // namespace spillway::models
