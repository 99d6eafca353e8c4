// Which of the candidates fit: sized exactly in the order of their estimates, the first that do are compared by simulation; where none
// does, what would let one. Pure functions.
#pragma once
#include "app/plan/candidates.h"

namespace spillway::app {

/// Bytes over each budget; zeros: the plan fits.
std::array<i64, offload::kTiers> excess(const parallel::Plan& plan, const TierBudgets& budgets);
i64 total_excess(const parallel::Plan& plan, const TierBudgets& budgets);

/// Error(refused) with the table when it does not fit.
void require_room(const parallel::Plan& plan, const TierBudgets& budgets);

/// Even by its estimate, which leaves out little, it does not fit.
bool hopeless(const Candidate& candidate, const TierBudgets& budgets);

/// A plan that fits once one tier has more than its budget.
struct WayOut {
  parallel::Tier tier;
  parallel::Plan plan;
};
/// For each tier the plan that takes least of it while the other budgets hold, of those tried: few are sized exactly. A tier that cannot
/// help alone is left out.
std::vector<WayOut> ways_out(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates);

/// Of one tier.
std::optional<parallel::Plan> plan_with_plenty(parallel::Tier tier, const parallel::PlanRequest& base, const PlanWishes& wishes,
                                               TierBudgets budgets, const Rates& rates);
/// With a disk as large as it likes, the plan that takes least of the device; empty where it would use no more of the disk than there is.
std::optional<parallel::Plan> plan_with_a_disk(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets,
                                               const Rates& rates);

/// A candidate that fits, and its cost by simulation, which knows of waits that the estimate does not.
struct Fitting {
  parallel::PlanRequest request;
  parallel::Plan plan;
  double estimate_s = 0, cost_s = 0;
};

struct Found {
  std::optional<Fitting> best;
  // For a refusal, where there is no best: not after a quick search or one that nobody wants explained.
  std::vector<WayOut> ways;
  std::optional<parallel::Plan> closest;
};

/// At the ZeRO stage that `base` has, with the logits kept where it keeps them. `quick`: the first that fits is the best. Error(refused)
/// where no tier has a budget.
Found search(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates,
             bool quick = false);

/// The best of it alone: where there is none, nothing is said of why.
std::optional<Fitting> fastest_that_fits(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets,
                                         const Rates& rates);

/// Of a plan for training; without training its forward's.
double step_seconds(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates);
/// What choices between plans go by: these seconds, and the price of what the step writes to nvme.
double step_cost_s(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates);

}  // namespace spillway::app
