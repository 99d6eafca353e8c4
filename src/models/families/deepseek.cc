// DeepSeek-V2 (arXiv:2405.04434), DeepSeek-V3 (arXiv:2412.19437; model_type deepseek_v3, also that of DeepSeek-R1), Kimi K2
// (arXiv:2507.20534; kimi_k2), whose configurations have the keys of DeepSeek-V3, and GLM-4.7 Flash (glm4_moe_lite): latent attention and
// mixtures of experts.
#include <fmt/format.h>

#include "kernels/experts/router.h"
#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// LatentDefaults holds the values that transformers assumes for missing keys of latent attention.
struct LatentDefaults {
  i64 query_rank = 1536, unrotated = 128, value_dim = 128;
};

void read_latent(const ConfigObject& object, ModelConfig& config, const LatentDefaults& d) {
  if (config.kv_heads != config.heads)
    object.complain("num_key_value_heads",
                    "the value of `num_attention_heads`, because latent attention has keys and values for each head");
  LatentAttention latent;
  if (!object.object().contains("q_lora_rank") || object.has("q_lora_rank"))
    latent.query_rank = object.whole("q_lora_rank", 1, kMaxWidth, d.query_rank);
  latent.key_rank = object.whole("kv_lora_rank", 1, kMaxWidth, 512);
  config.rotary_dim = object.whole("qk_rope_head_dim", 2, kMaxWidth, 64);
  if (config.rotary_dim % 2 != 0) object.complain("qk_rope_head_dim", "an even number, because rotary positions rotate pairs of elements");
  config.head_dim = object.whole("qk_nope_head_dim", 1, kMaxWidth, d.unrotated) + config.rotary_dim;
  latent.value_dim = object.whole("v_head_dim", 1, kMaxWidth, d.value_dim);
  if (latent.value_dim > config.head_dim)
    object.complain("v_head_dim", "at most qk_nope_head_dim + qk_rope_head_dim, because values are no wider than keys");
  config.latent = latent;
}

void require_pairs(const ConfigObject& object) {
  if (!object.flag("rope_interleave", true)) object.complain("rope_interleave", "true (no other order of rotated elements is supported)");
}

void read_deepseek(const ConfigObject& object, ModelConfig& config) {
  read_latent(object, config, {});
  require_pairs(object);
  config.experts = read_routed_experts(
      object, config, {.count = 256, .chosen = 8, .width = 2048, .shared = 1, .dense = 3, .factor = 2.5, .groups = 8, .chosen_groups = 4});
}

// The weights of a token's experts are shares of a softmax, which are not made to add up to 1: transformers does not read `norm_topk_prob`.
void read_deepseek_v2(const ConfigObject& object, ModelConfig& config) {
  read_latent(object, config, {});
  ExpertsConfig experts;
  experts.count = object.whole("n_routed_experts", 1, kMaxExperts, 64);
  experts.chosen = object.whole("num_experts_per_tok", 1, experts.count);
  experts.width = object.whole("moe_intermediate_size", 1, kMaxMlpWidth, 1407);
  experts.shared_width = object.whole("n_shared_experts", 0, kMaxExperts, 2) * experts.width;
  if (experts.shared_width > kMaxMlpWidth)
    object.complain("n_shared_experts", fmt::format("shared experts of together at most {} elements", kMaxMlpWidth));
  experts.normalised = false;
  RoutingConfig& routing = experts.routing;
  routing.wide = true;
  routing.factor = object.real("routed_scaling_factor", 0, 1e6, 1, true);
  const std::string method = object.text("topk_method", "greedy");
  if (method != "greedy" && method != "group_limited_greedy") object.complain("topk_method", "greedy or group_limited_greedy");
  if (method == "group_limited_greedy") {
    routing.groups = object.whole("n_group", 1, kernels::kMaxExpertGroups);
    routing.chosen_groups = object.whole("topk_group", 1, routing.groups);
    require_divisible(object, "n_routed_experts", experts.count, "n_group", routing.groups);
    if (routing.chosen_groups * (experts.count / routing.groups) < experts.chosen)
      object.complain("topk_group",
                      fmt::format("groups with together at least {} experts, the value of `num_experts_per_tok`", experts.chosen));
  }
  experts.dense_layers = read_first_dense_layers(object, config, 0);
  config.experts = experts;
}

// Which layers have experts is said by `mlp_layer_types` or, without it, as in DeepSeek-V3.
void read_glm4_moe_lite(const ConfigObject& object, ModelConfig& config) {
  read_latent(object, config, {.query_rank = 768, .unrotated = 192, .value_dim = 256});
  require_pairs(object);
  ExpertsConfig experts =
      read_routed_experts(object, config, {.count = 64, .chosen = 4, .width = 1536, .shared = 1, .dense = 1, .factor = 1.8});
  if (const json* kinds = object.find("mlp_layer_types")) {
    if (!kinds->is_array() || std::ssize(*kinds) != config.layers)
      object.complain("mlp_layer_types", fmt::format("a list of {} words, the value of `num_hidden_layers`", config.layers));
    experts.dense_layers.clear();
    for (i64 layer = 0; layer < config.layers; ++layer) {
      const json& kind = (*kinds)[static_cast<size_t>(layer)];
      if (kind != "dense" && kind != "sparse") object.complain("mlp_layer_types", "the words dense and sparse");
      if (kind == "dense") experts.dense_layers.push_back(layer);
    }
  }
  config.experts = experts;
}

void write_latent(const ModelConfig& c, json& root) {
  const LatentAttention& latent = c.latent.value();
  root["head_dim"] = root["qk_rope_head_dim"] = c.rotary_dim;
  root["qk_nope_head_dim"] = c.head_dim - c.rotary_dim;
  root["v_head_dim"] = latent.value_dim;
  root["q_lora_rank"] = latent.query_rank > 0 ? json(latent.query_rank) : json(nullptr);
  root["kv_lora_rank"] = latent.key_rank;
  write_routed_experts(c, root);
}

void write_deepseek(const ModelConfig& c, json& root) {
  write_latent(c, root);
  root["rope_interleave"] = true;
  root["scoring_func"] = "sigmoid", root["topk_method"] = "noaux_tc";  // keys of the published files, which transformers does not read
}

void write_deepseek_v2(const ModelConfig& c, json& root) {
  write_latent(c, root);
  root["scoring_func"] = "softmax";
  root["topk_method"] = c.experts->routing.groups > 1 ? "group_limited_greedy" : "greedy";
}

void write_glm4_moe_lite(const ModelConfig& c, json& root) {
  write_deepseek(c, root);
  json kinds = json::array();
  for (i64 layer = 0; layer < c.layers; ++layer) kinds.push_back(c.has_experts(layer) ? "sparse" : "dense");
  root["mlp_layer_types"] = kinds;
}

constexpr DecoderPreset kDeepSeekV2Presets[] = {
    {"deepseek-v2-lite-16b",
     R"({"num_hidden_layers": 27, "hidden_size": 2048, "intermediate_size": 10944, "num_attention_heads": 16, "num_key_value_heads": 16,
         "max_position_embeddings": 163840, "q_lora_rank": null, "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
         "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "bos_token_id": 100000, "eos_token_id": 100001})"}};
constexpr DecoderPreset kDeepSeekV3Presets[] = {
    {"deepseek-v3-671b",
     R"({"num_hidden_layers": 61, "hidden_size": 7168, "intermediate_size": 18432, "max_position_embeddings": 163840})"}};
constexpr DecoderPreset kGlm4MoeLitePresets[] = {
    {"glm4.7-flash-30b-a3b", R"({"num_hidden_layers": 47, "hidden_size": 2048, "intermediate_size": 10240})"}};

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
                                          .write = write_deepseek,
                                          .presets = kDeepSeekV3Presets};

constinit const DecoderFamily kKimiK2{.family = Family::kimi_k2,
                                      .type = "kimi_k2",
                                      .architecture = "DeepseekV3ForCausalLM",
                                      .defaults = kDefaults,
                                      .style = kStyle,
                                      .features = {"attention_bias", "num_local_experts", "mscale_all_dim"},
                                      .read = read_deepseek,
                                      .write = write_deepseek};

constinit const DecoderFamily kDeepSeekV2{
    .family = Family::deepseek_v2,
    .type = "deepseek_v2",
    .architecture = "DeepseekV2ForCausalLM",
    .defaults = {.heads = 32, .head_dim = 64, .positions = 2048, .vocabulary = 102400, .begin_token = 1, .end_tokens = {2}},
    .style = kStyle,
    .features = {"attention_bias", "num_local_experts", "mscale_all_dim"},
    .read = read_deepseek_v2,
    .write = write_deepseek_v2,
    .presets = kDeepSeekV2Presets};

constinit const DecoderFamily kGlm4MoeLite{.family = Family::glm4_moe_lite,
                                           .type = "glm4_moe_lite",
                                           .architecture = "Glm4MoeLiteForCausalLM",
                                           .defaults = {.heads = 20,
                                                        .kv_heads = 20,
                                                        .head_dim = 64,
                                                        .positions = 202752,
                                                        .vocabulary = 154880,
                                                        .norm_eps = 1e-5,
                                                        .begin_token = 0,
                                                        .end_tokens = {1}},
                                           .style = kStyle,
                                           .features = {"attention_bias", "num_local_experts", "mscale_all_dim"},
                                           .read = read_glm4_moe_lite,
                                           .write = write_glm4_moe_lite,
                                           .presets = kGlm4MoeLitePresets};

}  // namespace spillway::models
