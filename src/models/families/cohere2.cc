// Command R7B and Command A (Cohere 2, arXiv:2504.00698): attention and MLP side by side, and rotary positions in windowed layers only.
#include <algorithm>

#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

void read_cohere2(const ConfigObject& object, ModelConfig& config) {
  read_windows(object, config, window_of(object, 4096), [&](i64 layer) { return (layer + 1) % window_period(object, 4) != 0; });
  if (config.head_dim * config.heads != config.width)
    object.complain("head_dim",
                    "no such key or hidden_size / num_attention_heads, because heads of this model_type always have this width");
  config.logit_multiplier = object.real("logit_scale", 0, 1e6, 0.0625, true);
  for (i64 i = 0; i < config.layers; ++i) config.unrotated.push_back(!config.is_windowed(i));
  if (std::ranges::find(config.unrotated, true) == config.unrotated.end()) config.unrotated.clear();
}

void write_cohere2(const ModelConfig& c, nlohmann::json& root) {
  write_windows(c, root, 4096);
  root["logit_scale"] = c.logit_multiplier;
}

constexpr DecoderPreset kCohere2Presets[] = {
    {"command-r7b",
     R"({"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
           "intermediate_size": 14336, "vocab_size": 256000, "max_position_embeddings": 132096, "rope_theta": 5e4, "logit_scale": 0.25})"},
    {"command-a",
     R"({"num_hidden_layers": 64, "hidden_size": 12288, "num_attention_heads": 96, "num_key_value_heads": 8,
           "intermediate_size": 36864, "vocab_size": 256000, "max_position_embeddings": 131072, "rope_theta": 5e4, "logit_scale": 0.25})"}};

}  // namespace

constinit const DecoderFamily kCohere2{
    .family = Family::cohere2,
    .type = "cohere2",
    .architecture = "Cohere2ForCausalLM",
    .defaults = {.norm_eps = 1e-5, .tied = true, .begin_token = 5, .pad_token = 0, .end_tokens = {255001}},
    .style = {.norms = {.before_attention = "input_layernorm", .before_mlp = nullptr},
              .eps_key = "layer_norm_eps",
              .parallel = true,
              .layer_norm = true,
              .rope_pairs = true},
    .features = {"attention_bias", "sliding_window", "layer_types"},
    .read = read_cohere2,
    .write = write_cohere2,
    .presets = kCohere2Presets};

}  // namespace spillway::models
