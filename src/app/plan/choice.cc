#include "app/plan/choice.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace spillway::app {
namespace {

using Json = nlohmann::json;
using parallel::Tier;

Json numbers_of(const std::vector<Tier>& tiers) {
  Json all = Json::array();
  for (const Tier t : tiers) all.push_back(static_cast<int>(t));
  return all;
}

std::vector<Tier> tiers_of(const Json& numbers) {
  std::vector<Tier> tiers;
  for (const Json& n : numbers) tiers.push_back(static_cast<Tier>(n.get<int>()));
  return tiers;
}

}  // namespace

std::string to_text(const parallel::Plan& plan, const Shares& shares) {
  const parallel::Scheduling& s = plan.scheduling;
  Json activations = Json::array();
  for (const auto& policy : plan.placement.activations) activations.push_back({policy.recompute, static_cast<int>(policy.tier)});
  const Json choice = {{"parameters", numbers_of(plan.placement.parameters)},
                       {"gradients", numbers_of(plan.placement.gradients)},
                       {"optimizer", numbers_of(plan.placement.optimizer)},
                       {"activations", activations},
                       {"keeps_logits", plan.placement.keeps_logits},
                       {"cache", static_cast<int>(plan.placement.cache)},
                       {"prefetch", s.prefetch},
                       {"overlap", static_cast<int>(s.overlap)},
                       {"deferred_sixteenths", s.deferred_sixteenths},
                       {"order", static_cast<int>(s.order)},
                       {"stage", s.sharding.stage},
                       {"begins", s.pipeline.begins},
                       {"adaptive_overlap", plan.train_when_clipping.has_value()},
                       {"staging_buffers", plan.staging_buffers},
                       {"stripe_weights", shares.weights},
                       {"shares", shares.why}};
  return choice.dump();
}

void apply_choice(const std::string& text, parallel::PlanRequest& request, Shares& shares) {
  const Json choice = parse_json(text);
  parallel::Placement& p = request.placement;
  p.parameters = tiers_of(choice["parameters"]);
  p.gradients = tiers_of(choice["gradients"]);
  p.optimizer = tiers_of(choice["optimizer"]);
  for (const Json& policy : choice["activations"])
    p.activations.push_back({policy[0].get<bool>(), static_cast<Tier>(policy[1].get<int>())});
  p.keeps_logits = choice.value("keeps_logits", false);  // older programs do not say
  p.cache = static_cast<Tier>(choice.value("cache", 0));
  require(p.parameters.size() == request.layout.groups.size() && p.activations.size() == request.layout.blocks.size(),
          "[plan] the first rank's plan was made for another model");
  parallel::Scheduling& s = request.scheduling;
  s.prefetch = choice["prefetch"].get<int>();
  s.overlap = static_cast<parallel::OptimizerOverlap>(choice["overlap"].get<int>());
  s.deferred_sixteenths = choice.value("deferred_sixteenths", 0);  // older programs do not say
  s.order = static_cast<parallel::Order>(choice["order"].get<int>());
  s.sharding.stage = choice["stage"].get<int>();
  s.pipeline.begins = choice["begins"].get<std::vector<u16>>();
  request.adaptive_overlap = choice["adaptive_overlap"].get<bool>();
  if (const i64 buffers = choice["staging_buffers"].get<i64>(); buffers > 0) request.staging_buffers = buffers;
  const auto weights = choice["stripe_weights"].get<std::vector<u32>>();
  require(weights.size() == shares.weights.size(), "[plan] the first rank has another number of --nvme paths");
  shares = {weights, choice["shares"].get<std::string>()};
  if (!weights.empty()) request.stripe_weights = weights;
}

}  // namespace spillway::app
