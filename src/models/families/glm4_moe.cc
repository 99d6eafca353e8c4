// GLM-4.5 to 4.7 (arXiv:2508.06471; model_type glm4_moe), mixtures of experts.
#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// The output projection never has a bias.
void read_glm4_moe(const ConfigObject& object, ModelConfig& config) {
  config.output_bias = false;
  config.qk_normed = object.flag("use_qk_norm", false);
  config.experts = read_routed_experts(object, config, {.count = 128, .chosen = 8, .width = 1408, .shared = 1, .dense = 1});
}

void write_glm4_moe(const ModelConfig& c, json& root) {
  root["use_qk_norm"] = c.qk_normed;
  write_routed_experts(c, root);
}

constexpr DecoderPreset kGlm4MoePresets[] = {
    {"glm4.5-air-106b-a12b",
     R"({"num_hidden_layers": 46, "hidden_size": 4096, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
         "intermediate_size": 10944, "vocab_size": 151552, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1000000,
         "attention_bias": true, "n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1408,
         "routed_scaling_factor": 1.0, "pad_token_id": 151329, "eos_token_id": [151329, 151336, 151338]})"},
    {"glm4.6-355b-a32b",
     R"({"num_hidden_layers": 92, "hidden_size": 5120, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
         "intermediate_size": 12288, "vocab_size": 151552, "max_position_embeddings": 202752, "rms_norm_eps": 1e-5, "rope_theta": 1000000,
         "attention_bias": true, "use_qk_norm": true, "first_k_dense_replace": 3, "n_routed_experts": 160, "num_experts_per_tok": 8,
         "moe_intermediate_size": 1536, "routed_scaling_factor": 2.5, "pad_token_id": 151329, "eos_token_id": [151329, 151336, 151338]})"}};

}  // namespace

constinit const DecoderFamily kGlm4Moe{
    .family = Family::glm4_moe,
    .type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .defaults = {.heads = 96, .kv_heads = 8, .positions = 131072, .vocabulary = 151552, .norm_eps = 1e-5, .rotary_share = 0.5},
    .style = {.qk_norm = DecoderStyle::QkNorm::head},
    .features = {"attention_bias", "partial_rotary_factor", "use_qk_norm", "num_local_experts"},
    .read = read_glm4_moe,
    .write = write_glm4_moe,
    .presets = kGlm4MoePresets};

}  // namespace spillway::models
