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

}  // namespace

constinit const DecoderFamily kGranite{.family = Family::granite,
                                       .type = "granite",
                                       .architecture = "GraniteForCausalLM",
                                       .defaults = {.begin_token = 1, .end_tokens = {2}},
                                       .style = {},
                                       .features = {"attention_bias", "mlp_bias"},
                                       .read = read_granite,
                                       .write = write_granite};

}  // namespace spillway::models
