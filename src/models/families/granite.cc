// Granite 3 and 4 (arXiv:2408.04324 and its successors), dense: Llama with four multipliers.
#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

void read_granite(const ConfigObject& object, ModelConfig& config) {
  const auto factor = [&](const char* key) { return object.real(key, 0, 1e6, 1.0, true); };
  config.embedding_multiplier = factor("embedding_multiplier");
  config.residual_multiplier = factor("residual_multiplier");
  config.attention_multiplier = factor("attention_multiplier");
  config.logit_divisor = factor("logits_scaling");
}

void write_granite(const ModelConfig& c, nlohmann::json& root) {
  root["embedding_multiplier"] = c.embedding_multiplier;
  root["residual_multiplier"] = c.residual_multiplier;
  root["attention_multiplier"] = c.attention_multiplier;
  root["logits_scaling"] = c.logit_divisor;
}

constexpr DecoderPreset kGranitePresets[] = {
    {"granite3.3-2b",
     R"({"num_hidden_layers": 40, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8,
           "intermediate_size": 8192, "vocab_size": 49159, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e7,
           "tie_word_embeddings": true, "embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.015625,
           "logits_scaling": 8, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0})"},
    {"granite3.3-8b",
     R"({"num_hidden_layers": 40, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
           "intermediate_size": 12800, "vocab_size": 49159, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e7,
           "tie_word_embeddings": true, "embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125,
           "logits_scaling": 16, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0})"}};

}  // namespace

constinit const DecoderFamily kGranite{.family = Family::granite,
                                       .type = "granite",
                                       .architecture = "GraniteForCausalLM",
                                       .defaults = {.begin_token = 1, .end_tokens = {2}},
                                       .style = {},
                                       .features = {"attention_bias", "mlp_bias"},
                                       .read = read_granite,
                                       .write = write_granite,
                                       .presets = kGranitePresets};

}  // namespace spillway::models
