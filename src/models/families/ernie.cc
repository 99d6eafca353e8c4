// Ernie 4.5 with experts (model_type ernie4_5_moe), the language models: experts chosen by a softmax with a correction.
#include <fmt/format.h>

#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// transformers has one key for all biases of the projections of attention and MLPs.
void read_ernie(const ConfigObject& object, ModelConfig& config) {
  if (object.flag("use_bias", false)) object.complain("use_bias", "false or no such key (this feature is not supported)");
  ExpertsConfig experts;
  experts.count = object.whole("moe_num_experts", 1, kMaxExperts, 64);
  experts.chosen = object.whole("moe_k", 1, experts.count, std::min<i64>(experts.count, 6));
  experts.width = object.whole("moe_intermediate_size", 1, kMaxMlpWidth, 1536);
  experts.shared_width = object.whole("moe_num_shared_experts", 0, kMaxExperts, 2) * experts.width;
  if (experts.shared_width > kMaxMlpWidth)
    object.complain("moe_num_shared_experts", fmt::format("shared experts of together at most {} elements", kMaxMlpWidth));
  experts.balance = object.real("router_aux_loss_coef", 0, 1e6, 0.001);
  experts.evened_out = object.flag("output_router_logits", false);
  experts.routing.wide = experts.routing.corrected = true;
  experts.routing.least_sum = object.real("moe_norm_min", 0, 1, 1e-12);
  const i64 first = object.whole("moe_layer_start_index", 0, kMaxLayers, 1), step = object.whole("moe_layer_interval", 1, kMaxLayers, 1);
  i64 last = object.whole("moe_layer_end_index", -1, kMaxLayers, -1);
  if (last == -1) last = config.layers - 1;
  for (i64 layer = 0; layer < config.layers; ++layer) {
    if (layer < first || layer > last || (layer + 1) % step != 0) experts.dense_layers.push_back(layer);
  }
  config.experts = experts;
}

void write_ernie(const ModelConfig& c, json& root) {
  const ExpertsConfig& experts = c.experts.value();
  root["use_bias"] = false;
  root["moe_num_experts"] = experts.count;
  root["moe_k"] = experts.chosen;
  root["moe_intermediate_size"] = experts.width;
  root["moe_num_shared_experts"] = experts.shared_width / experts.width;
  root["router_aux_loss_coef"] = experts.balance;
  root["output_router_logits"] = experts.evened_out;
  root["moe_norm_min"] = experts.routing.least_sum;
  std::vector<i64> mixtures;
  for (i64 layer = 0; layer < c.layers; ++layer) {
    if (c.has_experts(layer)) mixtures.push_back(layer);
  }
  // The keys can name layers at equal distances alone, as they were read.
  const bool none = mixtures.empty();
  root["moe_layer_interval"] = mixtures.size() > 1 ? mixtures[1] - mixtures[0] : none ? 1 : mixtures[0] + 1;
  root["moe_layer_start_index"] = none ? c.layers : mixtures.front();
  root["moe_layer_end_index"] = none ? c.layers - 1 : mixtures.back();
}

constexpr DecoderPreset kErniePresets[] = {
    {"ernie4.5-21b-a3b", R"({"num_hidden_layers": 28, "hidden_size": 2560, "intermediate_size": 12288})"}};

}  // namespace

constinit const DecoderFamily kErnie45Moe{
    .family = Family::ernie4_5_moe,
    .type = "ernie4_5_moe",
    .architecture = "Ernie4_5_MoeForCausalLM",
    .defaults = {.heads = 20,
                 .kv_heads = 4,
                 .positions = 131072,
                 .vocabulary = 103424,
                 .norm_eps = 1e-5,
                 .theta = 500000,
                 .tied = true,
                 .begin_token = 1,
                 .pad_token = 0,
                 .end_tokens = {2}},
    .style = {.rope_pairs = true, .experts = {.correction = "moe_statics.e_score_correction_bias", .correction_is_row = true}},
    .features = {"num_experts", "num_local_experts"},
    .read = read_ernie,
    .write = write_ernie,
    .presets = kErniePresets};

}  // namespace spillway::models
