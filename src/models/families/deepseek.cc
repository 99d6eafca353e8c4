// DeepSeek-V3 (arXiv:2412.19437; model_type deepseek_v3, also that of DeepSeek-R1) and Kimi K2 (arXiv:2507.20534; kimi_k2), whose
// configurations have the same keys.
#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

void read_deepseek(const ConfigObject& object, ModelConfig& config) {
  if (config.kv_heads != config.heads)
    object.complain("num_key_value_heads",
                    "the value of `num_attention_heads`, because latent attention has keys and values for each head");
  LatentAttention latent;
  if (!object.object().contains("q_lora_rank") || object.has("q_lora_rank"))
    latent.query_rank = object.whole("q_lora_rank", 1, kMaxWidth, 1536);
  latent.key_rank = object.whole("kv_lora_rank", 1, kMaxWidth, 512);
  config.rotary_dim = object.whole("qk_rope_head_dim", 2, kMaxWidth, 64);
  if (config.rotary_dim % 2 != 0) object.complain("qk_rope_head_dim", "an even number, because rotary positions rotate pairs of elements");
  config.head_dim = object.whole("qk_nope_head_dim", 1, kMaxWidth, 128) + config.rotary_dim;
  latent.value_dim = object.whole("v_head_dim", 1, kMaxWidth, 128);
  if (latent.value_dim > config.head_dim)
    object.complain("v_head_dim", "at most qk_nope_head_dim + qk_rope_head_dim, because values are no wider than keys");
  if (!object.flag("rope_interleave", true)) object.complain("rope_interleave", "true (no other order of rotated elements is supported)");
  config.latent = latent;
  config.experts = read_routed_experts(
      object, config, {.count = 256, .chosen = 8, .width = 2048, .shared = 1, .dense = 3, .factor = 2.5, .groups = 8, .chosen_groups = 4});
}

void write_deepseek(const ModelConfig& c, json& root) {
  const LatentAttention& latent = c.latent.value();
  root["head_dim"] = root["qk_rope_head_dim"] = c.rotary_dim;
  root["qk_nope_head_dim"] = c.head_dim - c.rotary_dim;
  root["v_head_dim"] = latent.value_dim;
  root["q_lora_rank"] = latent.query_rank > 0 ? json(latent.query_rank) : json(nullptr);
  root["kv_lora_rank"] = latent.key_rank;
  root["rope_interleave"] = true;
  write_routed_experts(c, root);
  root["scoring_func"] = "sigmoid", root["topk_method"] = "noaux_tc";  // keys of the published files, which transformers does not read
}

constexpr DecoderDefaults kDefaults{
    .heads = 128, .kv_heads = 128, .head_dim = 64, .positions = 4096, .vocabulary = 129280, .begin_token = 0, .end_tokens = {1}};
constexpr DecoderStyle kStyle{.rope_pairs = true};

}  // namespace

constinit const DecoderFamily kDeepSeekV3{.family = Family::deepseek_v3,
                                          .type = "deepseek_v3",
                                          .architecture = "DeepseekV3ForCausalLM",
                                          .defaults = kDefaults,
                                          .style = kStyle,
                                          .features = {"attention_bias", "num_local_experts", "mscale_all_dim"},
                                          .read = read_deepseek,
                                          .write = write_deepseek};

constinit const DecoderFamily kKimiK2{.family = Family::kimi_k2,
                                      .type = "kimi_k2",
                                      .architecture = "DeepseekV3ForCausalLM",
                                      .defaults = kDefaults,
                                      .style = kStyle,
                                      .features = {"attention_bias", "num_local_experts", "mscale_all_dim"},
                                      .read = read_deepseek,
                                      .write = write_deepseek};

}  // namespace spillway::models
