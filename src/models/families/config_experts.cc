// Reads and writes the mixture-of-experts part of config.json, as transformers' Qwen3MoeConfig and MixtralConfig do.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/experts/router.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// transformers 5 uses num_local_experts for all families; transformers 4 uses it for Mixtral and num_experts for Qwen.
i64 read_count(const ConfigObject& object, i64 otherwise) {
  constexpr const char *kOne = "num_local_experts", *kOther = "num_experts";
  const i64 count = object.whole(object.has(kOne) ? kOne : kOther, 1, kMaxExperts, otherwise);
  if (object.has(kOne) && object.has(kOther) && object.whole(kOther, 1, kMaxExperts) != count)
    object.complain(kOther, fmt::format("{}, the value of `{}`, or no such key", count, kOne));
  return count;
}

std::vector<i64> read_dense_layers(const ConfigObject& object, i64 layers) {
  std::vector<bool> dense(static_cast<size_t>(layers));
  const i64 step = object.whole("decoder_sparse_step", 1, kMaxLayers, 1);
  for (i64 i = 0; i < layers; ++i) dense[static_cast<size_t>(i)] = (i + 1) % step != 0;
  if (const json* listed = object.find("mlp_only_layers")) {
    if (!listed->is_array()) object.complain("mlp_only_layers", "a list of layer numbers");
    for (const json& layer : *listed) {
      if (!layer.is_number_integer() || layer < 0 || layer >= layers)
        object.complain("mlp_only_layers", fmt::format("layer numbers from 0 to {}", layers - 1));
      dense[layer.get<size_t>()] = true;
    }
  }
  std::vector<i64> all;
  for (i64 i = 0; i < layers; ++i) {
    if (dense[static_cast<size_t>(i)]) all.push_back(i);
  }
  return all;
}

}  // namespace

ExpertsConfig read_experts(const ConfigObject& object, const ModelConfig& config, const ExpertDefaults& d) {
  ExpertsConfig experts;
  experts.count = read_count(object, d.count);
  experts.chosen = object.whole("num_experts_per_tok", 1, experts.count, std::min<i64>(experts.count, d.chosen));
  experts.balance = object.real("router_aux_loss_coef", 0, 1e6, 0.001);
  experts.evened_out = object.flag("output_router_logits", false);
  if (object.real("router_jitter_noise", 0, 1e6, 0) != 0) object.complain("router_jitter_noise", "0 (this feature is not supported)");
  if (d.width == 0) return experts;
  experts.width = object.whole("moe_intermediate_size", 1, kMaxMlpWidth, d.width);
  experts.normalised = object.flag("norm_topk_prob", false);
  experts.dense_layers = read_dense_layers(object, config.layers);
  return experts;
}

// The balance of these experts is that of their corrections: transformers reads output_router_logits, but adds no loss to it.
ExpertsConfig read_routed_experts(const ConfigObject& object, const ModelConfig& config, const RoutedExpertDefaults& d) {
  ExpertsConfig experts;
  const char* const key = object.has("n_routed_experts") ? "n_routed_experts" : "num_local_experts";
  experts.count = object.whole(key, 1, kMaxExperts, d.count);
  experts.chosen = object.whole("num_experts_per_tok", 1, experts.count, std::min(experts.count, d.chosen));
  experts.width = object.whole("moe_intermediate_size", 1, kMaxMlpWidth, d.width);
  experts.shared_width = object.whole("n_shared_experts", 0, kMaxExperts, d.shared) * experts.width;
  if (experts.shared_width > kMaxMlpWidth)
    object.complain("n_shared_experts", fmt::format("shared experts of together at most {} elements", kMaxMlpWidth));
  experts.normalised = object.flag("norm_topk_prob", true);
  RoutingConfig& routing = experts.routing;
  routing.wide = routing.sigmoid = routing.corrected = true;
  routing.factor = object.real("routed_scaling_factor", 0, 1e6, d.factor, true);
  routing.added_to_sum = 1e-20, routing.best_of_group = 2;
  routing.groups = object.whole("n_group", 1, kernels::kMaxExpertGroups, d.groups);
  routing.chosen_groups = object.whole("topk_group", 1, routing.groups, std::min(routing.groups, d.chosen_groups));
  require_divisible(object, key, experts.count, "n_group", routing.groups);
  const i64 size = experts.count / routing.groups;
  if (size < 2) object.complain("n_group", "groups of at least two experts");
  if (routing.chosen_groups * size < experts.chosen)
    object.complain("topk_group",
                    fmt::format("groups with together at least {} experts, the value of `num_experts_per_tok`", experts.chosen));
  experts.dense_layers = read_first_dense_layers(object, config, d.dense);
  return experts;
}

std::vector<i64> read_first_dense_layers(const ConfigObject& object, const ModelConfig& config, i64 otherwise) {
  std::vector<i64> dense(static_cast<size_t>(std::min(object.whole("first_k_dense_replace", 0, kMaxLayers, otherwise), config.layers)));
  std::iota(dense.begin(), dense.end(), i64{0});
  return dense;
}

void write_routed_experts(const ModelConfig& c, json& root) {
  const ExpertsConfig& experts = *c.experts;
  root["n_routed_experts"] = experts.count;
  root["num_experts_per_tok"] = experts.chosen;
  root["moe_intermediate_size"] = experts.width;
  root["n_shared_experts"] = experts.shared_width / experts.width;
  root["norm_topk_prob"] = experts.normalised;
  root["routed_scaling_factor"] = experts.routing.factor;
  root["n_group"] = experts.routing.groups;
  root["topk_group"] = experts.routing.chosen_groups;
  root["first_k_dense_replace"] = std::ssize(experts.dense_layers);
  root["num_nextn_predict_layers"] = 0;
}

// The number of experts is written under both names: for Qwen, transformers 4 reads `num_experts` and transformers 5 `num_local_experts`.
void write_experts(const ModelConfig& c, json& root) {
  const ExpertsConfig& experts = *c.experts;
  root["num_local_experts"] = experts.count;
  root["num_experts_per_tok"] = experts.chosen;
  root["router_aux_loss_coef"] = experts.balance;
  root["output_router_logits"] = experts.evened_out;
}

void write_sparse_layers(const ModelConfig& c, json& root) {
  const ExpertsConfig& experts = *c.experts;
  root["num_experts"] = experts.count;
  root["moe_intermediate_size"] = experts.width;
  root["norm_topk_prob"] = experts.normalised;
  root["decoder_sparse_step"] = 1;
  root["mlp_only_layers"] = experts.dense_layers;
}

}  // namespace spillway::models
