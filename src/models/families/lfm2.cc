// LFM2 (https://www.liquid.ai/blog/liquid-foundation-models-v2-our-second-series-of-generative-ai-models), dense: most layers are gated
// short convolutions.
#include <algorithm>

#include "kernels/sequence/short_conv.h"
#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// Returns the width of the MLP, which the published folders give before it is reduced to two thirds and rounded up.
i64 mlp_width_of(const ConfigObject& object) {
  const i64 given = object.whole(object.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size", 1, kMaxMlpWidth, 12288);
  if (!object.flag("block_auto_adjust_ff_dim", true)) return given;
  const i64 step = object.whole("block_multiple_of", 1, kMaxMlpWidth, 256);
  i64 width = 2 * given / 3;
  const double factor = object.real("block_ffn_dim_multiplier", 0, 64, 1.0, true);
  width = ceil_div(static_cast<i64>(factor * static_cast<double>(width)), step) * step;
  if (width < 1) object.complain("intermediate_size", "a width of the MLP of at least 1 after `block_auto_adjust_ff_dim`");
  return width;
}

void read_lfm2(const ConfigObject& object, ModelConfig& config) {
  config.mlp_width = mlp_width_of(object);
  if (object.has("tie_embedding")) config.tied_head = object.flag("tie_embedding", true);
  const json* attention = object.find("full_attn_idxs");
  if (attention && !attention->is_array()) object.complain("full_attn_idxs", "a list of layer numbers");
  read_mixers(object, config, Mixer::short_conv, {"conv"},
              [&](i64 layer) { return attention && std::ranges::find(*attention, json(layer)) == attention->end(); });
  config.short_conv.taps = object.whole("conv_L_cache", 1, kernels::kMaxConvTaps, 3);
  config.short_conv.bias = object.flag("conv_bias", false);
}

void write_lfm2(const ModelConfig& c, json& root) {
  write_mixers(c, root, "full_attention", "conv");
  root["block_auto_adjust_ff_dim"] = false;
  root["conv_L_cache"] = c.short_conv.taps;
  root["conv_bias"] = c.short_conv.bias;
}

constexpr DecoderPreset kLfm2Presets[] = {
    {"lfm2-1.2b",
     R"({"num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8, "block_ff_dim": 12288,
         "intermediate_size": 12288, "vocab_size": 65536, "max_position_embeddings": 128000, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
         "eos_token_id": 7})"}};

}  // namespace

constinit const DecoderFamily kLfm2{
    .family = Family::lfm2,
    .type = "lfm2",
    .architecture = "Lfm2ForCausalLM",
    .defaults = {.heads = 32,
                 .kv_heads = 8,
                 .positions = 128000,
                 .vocabulary = 65536,
                 .norm_eps = 1e-5,
                 .theta = 1e6,
                 .tied = true,
                 .begin_token = 1,
                 .pad_token = 0,
                 .end_tokens = {2}},
    .style = {.qk_norm = DecoderStyle::QkNorm::head,
              .norms = {.before_attention = "operator_norm", .before_mlp = "ffn_norm", .last = "model.embedding_norm"},
              .attention_names = {.output = "out_proj", .q_norm = "q_layernorm", .k_norm = "k_layernorm"},
              .mlp_names = {.mlp = "feed_forward", .gate = "w1", .up = "w3", .down = "w2"},
              .eps_key = "norm_eps"},
    .features = {"layer_types"},
    .read = read_lfm2,
    .write = write_lfm2,
    .presets = kLfm2Presets};

}  // namespace spillway::models
