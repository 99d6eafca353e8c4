// Finds the candidates that fit. They are sized exactly in the order of their estimates, and the first that fit are compared by simulation.
// If none fits, the search finds what would let one fit. Pure functions.
#pragma once
#include "app/plan/candidates.h"

namespace spillway::app {

/// Returns the bytes over each budget; all zeros means that the plan fits.
std::array<i64, offload::kTiers> excess(const parallel::Plan& plan, const TierBudgets& budgets);
i64 total_excess(const parallel::Plan& plan, const TierBudgets& budgets);

/// Throws Error(refused) with the memory table if the plan does not fit.
void require_room(const parallel::Plan& plan, const TierBudgets& budgets);

/// Returns whether the candidate cannot fit. Its estimate is a lower bound that leaves out little.
bool hopeless(const Candidate& candidate, const TierBudgets& budgets);

/// A plan that fits if one tier gets more than its budget.
struct WayOut {
  parallel::Tier tier;
  parallel::Plan plan;
};
/// Returns for each tier the plan that needs least of it while the other budgets hold. Only a few plans are sized exactly, so a smaller one
/// may exist. A tier that cannot help alone is left out.
std::vector<WayOut> ways_out(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates);

/// Returns such a plan for one tier; empty if none was found.
std::optional<parallel::Plan> plan_with_plenty(parallel::Tier tier, const parallel::PlanRequest& base, const PlacementSettings& wishes,
                                               TierBudgets budgets, const Rates& rates);
/// Assumes a disk of any size, and returns the plan that takes least of the device. Empty if that plan would use no more of the disk than
/// there is.
std::optional<parallel::Plan> plan_with_a_disk(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                               const Rates& rates);

/// A candidate that fits. Its cost is simulated, which accounts for waits that the estimate does not know.
struct Fitting {
  parallel::PlanRequest request;
  parallel::Plan plan;
  double estimate_s = 0, cost_s = 0;
};

struct Found {
  std::optional<Fitting> best;
  // Set for a refusal if there is no `best`, but not by a quick search or if no explanation is wanted.
  std::vector<WayOut> ways;
  std::optional<parallel::Plan> closest;
};

/// Searches at the ZeRO stage of `base`, with the logits kept if `base` keeps them. With `quick` the first plan that fits is the best.
/// Throws Error(refused) if no tier has a budget.
Found search(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates,
             bool quick = false);

/// Returns only the best plan; empty, without an explanation, if none fits.
std::optional<Fitting> fastest_that_fits(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                         const Rates& rates);

/// Returns the predicted seconds of a training step; without training those of a forward.
double step_seconds(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates);
/// Returns the cost by which plans are compared: those seconds plus the price of what the step writes to nvme.
double step_cost_s(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates);

}  // namespace spillway::app
