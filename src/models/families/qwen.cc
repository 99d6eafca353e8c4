// Qwen2 (arXiv:2407.10671), Qwen3 and its mixtures of experts (arXiv:2505.09388).
#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

i64 window_if_used(const ConfigObject& object) { return object.flag("use_sliding_window", false) ? window_of(object, 4096) : 0; }

void read_qwen(const ConfigObject& object, ModelConfig& config) {
  read_windows(object, config, window_if_used(object),
               [&](i64 layer) { return layer >= object.whole("max_window_layers", 0, kMaxLayers, 28); });
}

// Qwen2 has no biases but those of queries, keys and values, and no key for them.
void read_qwen2(const ConfigObject& object, ModelConfig& config) {
  read_qwen(object, config);
  config.attention_bias = true, config.output_bias = false;
}

void write_qwen(const ModelConfig& c, json& root) {
  write_windows(c, root);
  root["use_sliding_window"] = c.window > 0;
  i64 first = c.layers;
  while (first > 0 && c.is_windowed(first - 1)) --first;
  root["max_window_layers"] = first;
}

void read_qwen3_moe(const ConfigObject& object, ModelConfig& config) {
  read_windows(object, config, window_if_used(object), [](i64) { return true; });
  config.experts = read_experts(object, config, {.count = 128, .chosen = 8, .width = 768});
}

void write_qwen3_moe(const ModelConfig& c, json& root) {
  root["sliding_window"] = c.window > 0 ? json(c.window) : json(nullptr);
  root["use_sliding_window"] = c.window > 0;
  write_experts(c, root);
  write_sparse_layers(c, root);
}

}  // namespace

constinit const DecoderFamily kQwen2{.family = Family::qwen2,
                                     .type = "qwen2",
                                     .architecture = "Qwen2ForCausalLM",
                                     .defaults = {.kv_heads = 32, .attention_bias = true},
                                     .style = {},
                                     .features = {"sliding_window", "layer_types", "use_sliding_window"},
                                     .read = read_qwen2,
                                     .write = write_qwen};

constinit const DecoderFamily kQwen3{.family = Family::qwen3,
                                     .type = "qwen3",
                                     .architecture = "Qwen3ForCausalLM",
                                     .defaults = {.kv_heads = 32, .head_dim = 128},
                                     .style = {.qk_norm = DecoderStyle::QkNorm::head},
                                     .features = {"sliding_window", "layer_types", "use_sliding_window", "attention_bias"},
                                     .read = read_qwen,
                                     .write = write_qwen};

constinit const DecoderFamily kQwen3Moe{
    .family = Family::qwen3_moe,
    .type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .defaults = {.kv_heads = 4},
    .style = {.qk_norm = DecoderStyle::QkNorm::head},
    .features = {"num_experts", "num_local_experts", "sliding_window", "use_sliding_window", "attention_bias"},
    .read = read_qwen3_moe,
    .write = write_qwen3_moe};

}  // namespace spillway::models
