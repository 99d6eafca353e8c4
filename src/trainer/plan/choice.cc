#include "trainer/plan/choice.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace spillway::trainer {
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

PlanChoice choice_of(const parallel::Plan& plan, const Shares& shares) {
  const parallel::Scheduling& s = plan.scheduling;
  return {.placement = plan.placement,
          .prefetch = s.prefetch,
          .overlap = s.overlap,
          .deferred_sixteenths = s.deferred_sixteenths,
          .order = s.order,
          .zero_stage = s.sharding.stage,
          .begins = s.pipeline.begins,
          .adaptive_overlap = plan.train_when_clipping.has_value(),
          .streams_steps = s.streams_steps,
          .staging_buffers = plan.staging_buffers,
          .shares = shares};
}

void apply_choice(PlanChoice choice, parallel::PlanRequest& request, Shares& shares) {
  require(choice.placement.parameters.size() == request.layout.groups.size() &&
              choice.placement.activations.size() == request.layout.blocks.size(),
          "[plan] the first rank's plan was made for another model");
  require(choice.shares.weights.size() == shares.weights.size(), "[plan] the first rank has another number of --nvme paths than this rank");
  request.placement = std::move(choice.placement);
  parallel::Scheduling& s = request.scheduling;
  s.prefetch = choice.prefetch;
  s.overlap = choice.overlap;
  s.deferred_sixteenths = choice.deferred_sixteenths;
  s.order = choice.order;
  s.sharding.stage = choice.zero_stage;
  s.pipeline.begins = std::move(choice.begins);
  s.streams_steps = choice.streams_steps;
  request.adaptive_overlap = choice.adaptive_overlap;
  if (choice.staging_buffers > 0) request.staging_buffers = choice.staging_buffers;
  shares = std::move(choice.shares);
  if (!shares.weights.empty()) request.stripe_weights = shares.weights;
}

std::string to_text(const PlanChoice& choice) {
  Json activations = Json::array();
  for (const auto& policy : choice.placement.activations) activations.push_back({policy.recompute, static_cast<int>(policy.tier)});
  const Json all = {{"parameters", numbers_of(choice.placement.parameters)},
                    {"gradients", numbers_of(choice.placement.gradients)},
                    {"optimizer", numbers_of(choice.placement.optimizer)},
                    {"activations", activations},
                    {"keeps_logits", choice.placement.keeps_logits},
                    {"cache", static_cast<int>(choice.placement.cache)},
                    {"prefetch", choice.prefetch},
                    {"overlap", static_cast<int>(choice.overlap)},
                    {"deferred_sixteenths", choice.deferred_sixteenths},
                    {"order", static_cast<int>(choice.order)},
                    {"stage", choice.zero_stage},
                    {"begins", choice.begins},
                    {"adaptive_overlap", choice.adaptive_overlap},
                    {"streams_steps", choice.streams_steps},
                    {"staging_buffers", choice.staging_buffers},
                    {"stripe_weights", choice.shares.weights},
                    {"shares", choice.shares.why}};
  return all.dump();
}

PlanChoice parse_choice(const std::string& text) {
  const Json all = parse_json(text);
  PlanChoice choice;
  choice.placement.parameters = tiers_of(all["parameters"]);
  choice.placement.gradients = tiers_of(all["gradients"]);
  choice.placement.optimizer = tiers_of(all["optimizer"]);
  for (const Json& policy : all["activations"])
    choice.placement.activations.push_back({policy[0].get<bool>(), static_cast<Tier>(policy[1].get<int>())});
  choice.placement.keeps_logits = all["keeps_logits"].get<bool>();
  choice.placement.cache = static_cast<Tier>(all["cache"].get<int>());
  choice.prefetch = all["prefetch"].get<int>();
  choice.overlap = static_cast<parallel::OptimizerOverlap>(all["overlap"].get<int>());
  choice.deferred_sixteenths = all["deferred_sixteenths"].get<int>();
  choice.order = static_cast<parallel::Order>(all["order"].get<int>());
  choice.zero_stage = all["stage"].get<int>();
  choice.begins = all["begins"].get<std::vector<u16>>();
  choice.adaptive_overlap = all["adaptive_overlap"].get<bool>();
  choice.streams_steps = all["streams_steps"].get<bool>();
  choice.staging_buffers = all["staging_buffers"].get<i64>();
  choice.shares = {all["stripe_weights"].get<std::vector<u32>>(), all["shares"].get<std::string>()};
  return choice;
}

}  // namespace spillway::trainer
