#include "app/commands/plan_alternatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/plan/choice.h"
#include "app/plan/prediction.h"
#include "app/plan/refusal.h"
#include "app/plan/stage_plans.h"
#include "base/error.h"
#include "offload/tier.h"

namespace spillway::app {
namespace {

using parallel::Plan;
using parallel::PlanRequest;
using parallel::Tier;

// One flag more than was given.
struct Variation {
  std::string flag;
  PlanWishes wishes;
  TierBudgets budgets;
};

class Varying {
 public:
  Varying(const Plan& chosen, const PlanWishes& wishes, const TierBudgets& budgets) : chosen_(chosen), wishes_(wishes), budgets_(budgets) {}

  std::vector<Variation> all() {
    vary_places("--place-parameters", &PlanWishes::parameters, chosen_.placement.parameters);
    vary_places("--place-gradients", &PlanWishes::gradients, chosen_.placement.gradients);
    vary_places("--place-optimizer", &PlanWishes::optimizer, chosen_.placement.optimizer);
    std::vector<Tier> activations;
    for (const auto& policy : chosen_.placement.activations) activations.push_back(policy.tier);
    vary_places("--place-activations", &PlanWishes::activations, activations);
    vary_recompute();
    if (chosen_.uses(Tier::nvme) || moves_beside_gpu()) vary_moves();
    if (!wishes_.zero_stage && chosen_.scheduling.sharding.ranks > 1) vary_stages();
    if (!wishes_.order && chosen_.scheduling.micro_batches > 1) vary_order();
    vary_memory();
    return std::move(all_);
  }

 private:
  template <class Member, class Value>
  void add(std::string flag, Member member, Value value) {
    all_.push_back({std::move(flag), wishes_, budgets_});
    all_.back().wishes.*member = std::move(value);
  }

  void vary_places(const char* flag, PlacementWish PlanWishes::*wish, const std::vector<Tier>& now) {
    if (!(wishes_.*wish).automatic) return;
    for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      const bool there = budgets_.bytes[static_cast<size_t>(tier)] > 0 || (tier == Tier::host && budgets_.host_from_device);
      const bool same = std::ranges::all_of(now, [&](Tier t) { return t == tier; });
      if (there && !same) add(fmt::format("{} {}", flag, offload::to_string(tier)), wish, PlacementWish::whole(tier));
    }
  }

  void vary_recompute() {
    if (wishes_.recompute != Recompute::automatic) return;
    const auto& policies = chosen_.placement.activations;
    const auto again = std::ranges::count_if(policies, [](const auto& policy) { return policy.recompute; });
    if (again > 0) add("--recompute none", &PlanWishes::recompute, Recompute::none);
    if (again < std::ssize(policies)) add("--recompute block", &PlanWishes::recompute, Recompute::block);
  }

  bool moves_beside_gpu() const {
    return chosen_.on_gpu() && (chosen_.scheduling.prefetch > 0 || chosen_.train.overlap != parallel::OptimizerOverlap::none);
  }

  void vary_moves() {
    if (wishes_.overlap == OptimizerOverlap::automatic) {
      for (const auto& [word, overlap] :
           {std::pair("none", OptimizerOverlap::none), {"backward", OptimizerOverlap::backward}, {"forward", OptimizerOverlap::forward}}) {
        add(fmt::format("--optimizer-overlap {}", word), &PlanWishes::overlap, overlap);
      }
    }
    for (const i64 prefetch : {0, 1, 2, 4}) {
      if (!wishes_.prefetch && prefetch != chosen_.scheduling.prefetch)
        add(fmt::format("--prefetch {}", prefetch), &PlanWishes::prefetch, std::optional(prefetch));
    }
  }

  void vary_stages() {
    for (int stage = 0; stage <= 3; ++stage) {
      if (stage != chosen_.scheduling.sharding.stage && (stage >= 2 || !chosen_.scheduling.reduce_each))
        add(fmt::format("--zero-stage {}", stage), &PlanWishes::zero_stage, std::optional(stage));
    }
  }

  void vary_order() {
    const bool vertical = chosen_.scheduling.order == parallel::Order::vertical;
    add(vertical ? "--pipeline-schedule 1f1b" : "--pipeline-schedule vertical", &PlanWishes::order,
        std::optional(vertical ? parallel::Order::micro_batch : parallel::Order::vertical));
  }

  // Half of a tier that somebody split off.
  void vary_memory() {
    if (budgets_.host_from_device) return;
    for (const auto& [flag, t] : {std::pair("--device-memory", size_t{0}), {"--host-memory", size_t{1}}}) {
      const i64 half = budgets_.bytes[t] / 2 / kMiB * kMiB;
      if (half == 0 || chosen_.total[t] <= half) continue;
      all_.push_back({fmt::format("{} {}", flag, at_least(half)), wishes_, budgets_});
      all_.back().budgets.bytes[t] = half;
    }
  }

  const Plan& chosen_;
  const PlanWishes& wishes_;
  const TierBudgets& budgets_;
  std::vector<Variation> all_;
};

// As it was before anything was chosen.
PlanRequest as_asked(PlanRequest request) {
  request.placement = {};
  request.staging_buffers = parallel::kLeastStagingBuffers;
  request.adaptive_overlap = false;
  return request;
}

std::optional<Alternative> planned(const PlanRequest& asked, Variation variation, const Rates& rates) {
  variation.wishes.explained = false;
  try {
    const ChosenPlan chosen = choose_stage_plans(asked, variation.wishes, variation.budgets, rates);
    PlanRequest request = asked;
    Shares shares{asked.stripe_weights, "", false};
    apply_choice(to_text(chosen.plan, shares), request, shares);
    Prediction prediction(chosen.plan, request, {.rates = rates, .doubts = ""}, 1);
    return Alternative{variation.flag, prediction.step(chosen.plan.train, chosen.plan.train.commit).seconds, chosen.plan.total};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::refused) return {};
    throw;
  }
}

bool alike(const Alternative& one, const Alternative& other) {
  return one.total == other.total && std::abs(one.seconds - other.seconds) <= 1e-6 * other.seconds;
}

}  // namespace

std::vector<Alternative> alternatives(const PlanRequest& request, const Plan& chosen, double seconds, const PlanWishes& wishes,
                                      const TierBudgets& budgets, const Rates& rates) {
  const PlanRequest asked = as_asked(request);
  std::vector<Alternative> all = {{"", seconds, chosen.total}};
  for (Variation& variation : Varying(chosen, wishes, budgets).all()) {
    const auto one = planned(asked, std::move(variation), rates);
    if (one && std::ranges::none_of(all, [&](const Alternative& other) { return alike(*one, other); })) all.push_back(*one);
  }
  all.erase(all.begin());
  std::ranges::stable_sort(all, {}, &Alternative::seconds);
  all.resize(std::min(all.size(), kMostAlternatives));
  return all;
}

}  // namespace spillway::app
