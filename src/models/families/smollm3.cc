// SmolLM3 (https://huggingface.co/blog/smollm3): Llama whose every fourth layer has no rotary positions.
#include <algorithm>

#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// `no_rope_layers` holds 1 for a layer with rotary positions and 0 for a layer without, in spite of its name.
void read_smollm3(const ConfigObject& object, ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.layers);
  const json* list = object.find("no_rope_layers");
  if (list && (!list->is_array() || list->size() != layers))
    object.complain("no_rope_layers", "a list with 1 (rotary positions) or 0 (none) for each layer");
  const i64 interval = object.whole("no_rope_layer_interval", 1, kMaxLayers, 4);
  std::vector<bool> unrotated(layers);
  for (size_t i = 0; i < layers; ++i) {
    unrotated[i] = list ? (*list)[i] == 0 : (static_cast<i64>(i) + 1) % interval == 0;
    if (list && !unrotated[i] && (*list)[i] != 1)
      object.complain("no_rope_layers", "a list with 1 (rotary positions) or 0 (none) for each layer");
  }
  const i64 window = object.flag("use_sliding_window", false) ? window_of(object, {}) : 0;
  read_windows(object, config, window, [&](i64 layer) { return unrotated[static_cast<size_t>(layer)]; });
  if (std::ranges::find(unrotated, true) != unrotated.end()) config.unrotated = std::move(unrotated);
}

void write_smollm3(const ModelConfig& c, json& root) {
  write_windows(c, root);
  root["use_sliding_window"] = c.window > 0;
  for (i64 i = 0; i < c.layers; ++i) root["no_rope_layers"].push_back(c.is_rotated(i) ? 1 : 0);
}

constexpr DecoderPreset kSmolLm3Presets[] = {
    {"smollm3-3b",
     R"({"num_hidden_layers": 36, "hidden_size": 2048, "num_attention_heads": 16, "intermediate_size": 11008, "vocab_size": 128256,
           "max_position_embeddings": 65536, "rope_theta": 5e6})"}};

}  // namespace

constinit const DecoderFamily kSmolLm3{
    .family = Family::smollm3,
    .type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .defaults = {.kv_heads = 4, .theta = 2e6, .tied = true, .begin_token = 128000, .pad_token = 128004, .end_tokens = {128001}},
    .style = {},
    .features = {"attention_bias", "mlp_bias", "sliding_window", "use_sliding_window", "layer_types"},
    .read = read_smollm3,
    .write = write_smollm3,
    .presets = kSmolLm3Presets};

}  // namespace spillway::models
