// Phi-3 and Phi-4-mini (arXiv:2404.14219, arXiv:2503.01743).
#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

void read_phi3(const ConfigObject& object, ModelConfig& config) {
  for (const char* key : {"embd_pdrop", "resid_pdrop"}) {
    if (object.share(key, 0) != 0) object.complain(key, "0 (dropout in this place is not supported)");
  }
  read_windows(object, config, window_of(object, {}), [](i64) { return true; });
}

void write_phi3(const ModelConfig& c, json& root) {
  root["sliding_window"] = c.window > 0 ? json(c.window) : json(nullptr);
  root["embd_pdrop"] = root["resid_pdrop"] = 0.0;
  root["original_max_position_embeddings"] =
      c.rope_scaling && c.rope_scaling->kind == RopeScaling::Kind::longrope ? c.rope_scaling->original_positions : c.positions;
}

// Phi-4-mini without its longrope, whose 48 pairs of divisors matter to published weights alone.
constexpr DecoderPreset kPhi3Presets[] = {
    {"phi4-mini",
     R"({"num_hidden_layers": 32, "hidden_size": 3072, "num_attention_heads": 24, "num_key_value_heads": 8, "intermediate_size": 8192,
           "vocab_size": 200064, "max_position_embeddings": 4096, "partial_rotary_factor": 0.75, "tie_word_embeddings": true,
           "sliding_window": null, "bos_token_id": 199999, "eos_token_id": 199999, "pad_token_id": 199999})"}};

}  // namespace

constinit const DecoderFamily kPhi3{.family = Family::phi3,
                                    .type = "phi3",
                                    .architecture = "Phi3ForCausalLM",
                                    .defaults = {.norm_eps = 1e-5, .begin_token = 1, .pad_token = 32000, .end_tokens = {32000}},
                                    .style = {.fused_qkv = true, .fused_gate = true},
                                    .features = {"sliding_window", "partial_rotary_factor", "longrope"},
                                    .read = read_phi3,
                                    .write = write_phi3,
                                    .presets = kPhi3Presets};

}  // namespace spillway::models
