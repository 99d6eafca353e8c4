// Qwen3-Next, and the language models of Qwen3.5 and Qwen3.6 with and without mixtures of experts: most layers are Gated DeltaNet
// (arXiv:2412.06464), and attention has an output gate. In a mixture, a shared expert with a gate of its own stands beside the experts
// that are chosen.
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

// transformers has no key for the normalisation of the experts' weights, nor for layers without experts.
void read_qwen3_5_moe(const ConfigObject& object, ModelConfig& config) {
  read_qwen3_5(object, config);
  config.experts = read_experts(object, config, {.count = 256, .chosen = 8});
  config.experts->width = object.whole("moe_intermediate_size", 1, kMaxMlpWidth, 512);
  config.experts->shared_width = object.whole("shared_expert_intermediate_size", 1, kMaxMlpWidth, 512);
}

void write_qwen3_5_moe(const ModelConfig& c, nlohmann::json& root) {
  write_qwen3_5(c, root);
  write_experts(c, root);
  root["num_experts"] = c.experts->count;
  root["moe_intermediate_size"] = c.experts->width;
  root["shared_expert_intermediate_size"] = c.experts->shared_width;
}

void read_qwen3_next(const ConfigObject& object, ModelConfig& config) {
  read_qwen3_5(object, config);
  config.delta_net.by_key_head = true;
  config.experts = read_experts(object, config, {.count = 512, .chosen = 10, .width = 512});
  config.experts->normalised = object.flag("norm_topk_prob", true);
  config.experts->shared_width = object.whole("shared_expert_intermediate_size", 1, kMaxMlpWidth, 512);
}

void write_qwen3_next(const ModelConfig& c, nlohmann::json& root) {
  write_qwen3_5_moe(c, root);
  write_sparse_layers(c, root);
}

constexpr DecoderPreset kQwen35MoePresets[] = {
    {"qwen3.5-35b-a3b",
     R"({"num_hidden_layers": 40, "hidden_size": 2048, "max_position_embeddings": 262144, "rope_theta": 1e7, "num_experts": 256,
         "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "eos_token_id": 248044})"}};
constexpr DecoderPreset kQwen3NextPresets[] = {
    {"qwen3-next-80b-a3b",
     R"({"num_hidden_layers": 48, "hidden_size": 2048, "intermediate_size": 5120, "max_position_embeddings": 262144, "rope_theta": 1e7,
         "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
         "bos_token_id": 151643, "eos_token_id": 151645})"}};

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

constinit const DecoderFamily kQwen35Moe{
    .family = Family::qwen3_5_moe,
    .type = "qwen3_5_moe_text",
    .architecture = "Qwen3_5MoeForCausalLM",
    .defaults =
        {.heads = 16, .kv_heads = 2, .head_dim = 256, .mlp_width = 512, .positions = 32768, .vocabulary = 248320, .rotary_share = 0.25},
    .style = {.qk_norm = DecoderStyle::QkNorm::head,
              .gain_offset = 1,
              .output_gate = true,
              .experts = {.shared = "mlp.shared_expert", .shared_gate = "mlp.shared_expert_gate"}},
    .features = {"attention_bias", "layer_types", "partial_rotary_factor", "mrope_section", "num_experts", "num_local_experts"},
    .read = read_qwen3_5_moe,
    .write = write_qwen3_5_moe,
    .presets = kQwen35MoePresets};

constinit const DecoderFamily kQwen3Next{
    .family = Family::qwen3_next,
    .type = "qwen3_next",
    .architecture = "Qwen3NextForCausalLM",
    .defaults =
        {.heads = 16, .kv_heads = 2, .head_dim = 256, .mlp_width = 5632, .positions = 32768, .vocabulary = 151936, .rotary_share = 0.25},
    .style = {.qk_norm = DecoderStyle::QkNorm::head,
              .gain_offset = 1,
              .output_gate = true,
              .experts = {.shared = "mlp.shared_expert", .shared_gate = "mlp.shared_expert_gate"}},
    .features = {"attention_bias", "layer_types", "partial_rotary_factor", "num_experts", "num_local_experts"},
    .read = read_qwen3_next,
    .write = write_qwen3_next,
    .presets = kQwen3NextPresets};

}  // namespace spillway::models
