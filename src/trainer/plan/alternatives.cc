#include "trainer/plan/alternatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "offload/tier.h"
#include "trainer/plan/choice.h"
#include "trainer/plan/prediction.h"
#include "trainer/plan/refusal.h"
#include "trainer/plan/stage_plans.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer {
namespace {

using parallel::Plan;
using parallel::PlanRequest;
using parallel::Tier;

// Variation holds the user's options and budgets with one flag added.
struct Variation {
  std::string flag;
  PlacementSettings wishes;
  TierBudgets budgets;
};

class Varying {
 public:
  Varying(const Plan& chosen, const PlacementSettings& wishes, const TierBudgets& budgets)
      : chosen_(chosen), wishes_(wishes), budgets_(budgets) {}

  std::vector<Variation> all() {
    vary_places("--place-parameters", &PlacementSettings::parameters, chosen_.placement.parameters);
    vary_places("--place-gradients", &PlacementSettings::gradients, chosen_.placement.gradients);
    vary_places("--place-optimizer", &PlacementSettings::optimizer, chosen_.placement.optimizer);
    std::vector<Tier> activations;
    for (const auto& policy : chosen_.placement.activations) activations.push_back(policy.tier);
    vary_places("--place-activations", &PlacementSettings::activations, activations);
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

  void vary_places(const char* flag, PlacementWish PlacementSettings::*wish, const std::vector<Tier>& now) {
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
    if (again > 0) add("--recompute none", &PlacementSettings::recompute, Recompute::none);
    if (again < std::ssize(policies)) add("--recompute block", &PlacementSettings::recompute, Recompute::block);
  }

  bool moves_beside_gpu() const {
    return chosen_.on_gpu() && (chosen_.scheduling.prefetch > 0 || chosen_.train.overlap != parallel::OptimizerOverlap::none);
  }

  void vary_moves() {
    // If gradients are often clipped, making all optimizer updates inside the backward is not tried: the adaptive plan, which switches
    // this off while gradients are clipped, already gains all that it could.
    if (wishes_.overlap == OptimizerOverlap::automatic) {
      for (const auto& [word, overlap] : {std::pair("none", OptimizerOverlap::none), {"forward", OptimizerOverlap::forward}}) {
        add(fmt::format("--optimizer-overlap {}", word), &PlacementSettings::overlap, overlap);
      }
    }
    for (const i64 prefetch : {0, 1, 2, 4}) {
      if (!wishes_.prefetch && prefetch != chosen_.scheduling.prefetch)
        add(fmt::format("--prefetch {}", prefetch), &PlacementSettings::prefetch, std::optional(prefetch));
    }
  }

  void vary_stages() {
    for (int stage = 0; stage <= 3; ++stage) {
      if (stage != chosen_.scheduling.sharding.stage && (stage >= 2 || !chosen_.scheduling.reduce_each))
        add(fmt::format("--zero-stage {}", stage), &PlacementSettings::zero_stage, std::optional(stage));
    }
  }

  void vary_order() {
    const bool vertical = chosen_.scheduling.order == parallel::Order::vertical;
    add(vertical ? "--pipeline-schedule 1f1b" : "--pipeline-schedule vertical", &PlacementSettings::order,
        std::optional(vertical ? parallel::Order::micro_batch : parallel::Order::vertical));
  }

  // Adds variations with half the device budget and with half the host budget, if the two tiers have separate budgets.
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
  const PlacementSettings& wishes_;
  const TierBudgets& budgets_;
  std::vector<Variation> all_;
};

// A plan that one more flag leads to, and its summary for the user.
struct Made {
  ChosenPlan chosen;
  Alternative told;
};

Made made(const PlanRequest& asked, const Variation& variation, const Rates& rates) {
  ChosenPlan chosen = choose_stage_plans(asked, variation.wishes, variation.budgets, rates);
  PlanRequest request = asked;
  Shares shares{asked.stripe_weights, "", false};
  apply_choice(choice_of(chosen.plan, shares), request, shares);
  Prediction prediction(chosen.plan, request, {.rates = rates, .doubts = ""}, 1);
  const double seconds = prediction.step(chosen.plan.train).seconds;
  const i64 written_bytes = chosen.plan.moved_per_step().written[static_cast<size_t>(Tier::nvme)];
  Alternative told{variation.flag, seconds, written_bytes, chosen.plan.total};
  return {std::move(chosen), std::move(told)};
}

std::optional<Made> made_if_it_fits(const PlanRequest& asked, Variation variation, const Rates& rates) {
  variation.wishes.explained = false;
  try {
    return made(asked, variation, rates);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::refused) return {};
    throw;
  }
}

bool alike(const Alternative& one, const Alternative& other) {
  return one.total == other.total && std::abs(one.seconds - other.seconds) <= 1e-6 * other.seconds;
}

// Plan A is clearly faster than plan B if it takes less than kClearlyFaster times the time
// of B. Plan A is about as fast as plan B if it takes at most kAsLong times the time of B.
constexpr double kClearlyFaster = 0.98, kAsLong = 1.005;

bool beats(const Alternative& one, const Alternative& other) {
  return one.seconds < kClearlyFaster * other.seconds ||
         (one.seconds <= kAsLong * other.seconds && one.nvme_written_bytes < other.nvme_written_bytes);
}

// Returns the index of the plan to use. That is the first plan unless another plan beats it, so that a
// restart, which measures the machine again, usually uses the same plan as before. If the first plan is
// beaten, the plan of least cost is used, but never one that is clearly slower than the fastest plan.
size_t best_of(const std::vector<Alternative>& all, const Rates& rates) {
  if (std::ranges::none_of(all, [&](const Alternative& one) { return beats(one, all.front()); })) return 0;
  const double fastest_s = std::ranges::min_element(all, {}, &Alternative::seconds)->seconds;
  const auto cost_s = [&](const Alternative& one) {
    const double price_s = rates.write_price_s(static_cast<double>(one.nvme_written_bytes));
    return fastest_s < kClearlyFaster * one.seconds ? std::numeric_limits<double>::infinity() : one.seconds + price_s;
  };
  return static_cast<size_t>(std::ranges::min_element(all, {}, cost_s) - all.begin());
}

// Sorts the alternatives, fastest first. Removes plans equal to the chosen one, and all but one of plans that equal each other.
std::vector<Alternative> different(std::vector<Alternative> all, const Alternative& chosen) {
  std::ranges::stable_sort(all, {}, &Alternative::seconds);
  std::vector<Alternative> others;
  for (Alternative& one : all) {
    const auto like_it = [&](const Alternative& other) { return alike(one, other); };
    if (!one.flag.empty() && !like_it(chosen) && std::ranges::none_of(others, like_it)) others.push_back(std::move(one));
  }
  return others;
}

}  // namespace

Choice choose_with_alternatives(const PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates) {
  if (!base.training) return {choose_stage_plans(base, wishes, budgets, rates), {}};
  Made first = made(base, {"", wishes, budgets}, rates);
  std::vector<Variation> variations = {{"", wishes, budgets}};
  std::vector<Alternative> all = {first.told};
  for (Variation& variation : Varying(first.chosen.plan, wishes, budgets).all()) {
    // The ZeRO stage is fixed, because trying every ZeRO stage with every flag would take several times as long (almost a minute for
    // hundreds of ranks).
    if (!variation.wishes.zero_stage) variation.wishes.zero_stage = first.chosen.plan.scheduling.sharding.stage;
    const std::optional<Made> one = made_if_it_fits(base, variation, rates);
    if (!one) continue;
    all.push_back(one->told);
    variations.push_back(std::move(variation));
  }
  const size_t best = best_of(all, rates);
  // the chosen plan is computed again, since keeping all plans would take much memory
  if (best > 0) first = made(base, variations[best], rates);
  return {std::move(first.chosen), different(std::move(all), first.told)};
}

}  // namespace spillway::trainer
