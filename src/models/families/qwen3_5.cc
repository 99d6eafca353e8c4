// Qwen3.5, the language models without mixtures of experts: most layers are Gated DeltaNet (arXiv:2412.06464), and attention has an output
// gate.
#include <algorithm>

#include "kernels/sequence/short_conv.h"
#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

void read_qwen3_5(const ConfigObject& object, ModelConfig& config) {
  if (!object.flag("attn_output_gate", true)) object.complain("attn_output_gate", "true or no such key");
  const i64 period = object.whole("full_attention_interval", 1, kMaxLayers, 4);
  read_mixers(object, config, Mixer::delta_net, {"linear_attention"}, [&](i64 layer) { return (layer + 1) % period != 0; });
  DeltaNetConfig& net = config.delta_net;
  net.value_heads = object.whole("linear_num_value_heads", 1, kMaxWidth, 32);
  net.key_heads = object.whole("linear_num_key_heads", 1, net.value_heads, std::min<i64>(16, net.value_heads));
  require_divisible(object, "linear_num_value_heads", net.value_heads, "linear_num_key_heads", net.key_heads);
  net.key_dim = object.whole("linear_key_head_dim", 1, 4096, 128);
  net.value_dim = object.whole("linear_value_head_dim", 1, 4096, 128);
  net.taps = object.whole("linear_conv_kernel_dim", 1, kernels::kMaxConvTaps, 4);
}

void write_qwen3_5(const ModelConfig& c, nlohmann::json& root) {
  write_mixers(c, root, "full_attention", "linear_attention");
  const DeltaNetConfig& net = c.delta_net;
  root["linear_num_value_heads"] = net.value_heads, root["linear_num_key_heads"] = net.key_heads;
  root["linear_key_head_dim"] = net.key_dim, root["linear_value_head_dim"] = net.value_dim;
  root["linear_conv_kernel_dim"] = net.taps;
}

}  // namespace

constinit const DecoderFamily kQwen35{
    .family = Family::qwen3_5,
    .type = "qwen3_5_text",
    .architecture = "Qwen3_5ForCausalLM",
    .defaults = {.heads = 16, .kv_heads = 4, .head_dim = 256, .positions = 32768, .vocabulary = 248320, .rotary_share = 0.25},
    .style = {.qk_norm = DecoderStyle::QkNorm::head, .gain_offset = 1, .output_gate = true},
    .features = {"attention_bias", "layer_types", "partial_rotary_factor", "mrope_section"},
    .read = read_qwen3_5,
    .write = write_qwen3_5};

}  // namespace spillway::models
