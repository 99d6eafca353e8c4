// Which of the candidates fit: sized exactly in the order of their estimates, the first that do are compared by simulation; where none
// does, what would let one. Pure functions.
#pragma once
#include "app/plan/cost_model.h"
#include "app/plan/planner.h"

namespace spillway::app {

/// A plan that fits once one tier has more than its budget.
struct WayOut {
  parallel::Tier tier;
  parallel::Plan plan;
};
/// For each tier the plan that takes least of it while the other budgets hold, of those tried: few are sized exactly. A tier that cannot
/// help alone is left out. One of them may fit as the budgets are.
std::vector<WayOut> ways_out(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates);

/// Of one tier.
std::optional<parallel::Plan> plan_with_plenty(parallel::Tier tier, const parallel::PlanRequest& base, const PlanWishes& wishes,
                                               TierBudgets budgets, const Rates& rates);
/// With a disk as large as it likes, the plan that takes least of the device; empty where it would use no more of the disk than there is.
std::optional<parallel::Plan> plan_with_a_disk(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets,
                                               const Rates& rates);

/// A candidate that fits, and its time by simulation, which knows of waits that the estimate does not.
struct Fitting {
  parallel::PlanRequest request;
  parallel::Plan plan;
  double estimate_s = 0, seconds = 0;
};

struct Found {
  std::optional<Fitting> best;
  std::vector<WayOut> ways;               // where there is no best
  std::optional<parallel::Plan> closest;  // likewise
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

}  // namespace spillway::app
