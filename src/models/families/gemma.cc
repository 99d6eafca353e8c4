// Gemma 2 (arXiv:2408.00118) and Gemma 3 (arXiv:2503.19786).
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
  write_windows(c, root);
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

}  // namespace spillway::models
