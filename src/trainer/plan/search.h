// Finds the plans that fit the budgets, among the candidates (candidates.h). Candidates are sized exactly in the order of their estimated
// times, and the first few that fit are compared by simulation. If none fits, the search finds larger budgets with which a plan would fit.
// All functions are pure.
#pragma once
#include "trainer/plan/candidates.h"

namespace spillway::trainer {

/// Returns the bytes by which the plan exceeds each budget. All zeros mean that the plan fits.
std::array<i64, offload::kTiers> excess(const parallel::Plan& plan, const TierBudgets& budgets);
i64 total_excess(const parallel::Plan& plan, const TierBudgets& budgets);

/// Throws Error(refused) with the memory table if the plan does not fit the budgets.
void require_room(const parallel::Plan& plan, const TierBudgets& budgets);

/// Returns whether the candidate certainly does not fit. Its estimated bytes are a lower bound, close to the exact bytes.
bool hopeless(const Candidate& candidate, const TierBudgets& budgets);

/// A plan that would fit if one tier had more bytes than its budget.
struct WayOut {
  parallel::Tier tier;
  parallel::Plan plan;
};
/// Returns for each tier the plan that needs the fewest bytes of that tier and keeps within the budgets of the other tiers. Only a
/// few plans are sized exactly, so a smaller plan may exist. A tier is left out if no plan fits even with a very large budget for it.
std::vector<WayOut> ways_out(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                             const Rates& rates);

/// Returns the plan that ways_out() gives for one tier. The result is empty if none was found.
std::optional<parallel::Plan> plan_with_plenty(parallel::Tier tier, const parallel::PlanRequest& base, const PlacementSettings& wishes,
                                               TierBudgets budgets, const Rates& rates);
/// Returns the plan that would need the fewest device bytes if disk and device had very large budgets. The result is empty if the present
/// disk is large enough for that plan.
std::optional<parallel::Plan> plan_with_a_disk(const parallel::PlanRequest& base, const PlacementSettings& wishes,
                                               const TierBudgets& budgets, const Rates& rates);

/// A candidate that fits. Its cost comes from a simulation, which includes waiting times that the estimate ignores.
struct Fitting {
  parallel::PlanRequest request;
  parallel::Plan plan;
  double estimate_s = 0, cost_s = 0;
};

struct Found {
  std::optional<Fitting> best;
  // `ways` and `closest` explain why no plan fits. They are set if there is no `best`, unless the search is quick or no explanation is
  // wanted.
  std::vector<WayOut> ways;
  std::optional<parallel::Plan> closest;
};

/// Searches for the best plan at the ZeRO stage of `base`. The plans keep the logits if `base` does.
/// With `quick` the first plan that fits is the result. Throws Error(refused) if no tier has a budget.
Found search(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates,
             bool quick = false);

/// Returns only the best plan of search(). Returns nothing, and finds no explanation, if no plan fits.
std::optional<Fitting> fastest_that_fits(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                         const Rates& rates);

/// Returns the predicted seconds of a training step, or of a forward if the plan does not train.
double step_seconds(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates);
/// Returns the cost by which plans are compared: step_seconds() plus the price of the bytes that the step writes to nvme.
double step_cost_s(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates);

}  // namespace spillway::trainer
