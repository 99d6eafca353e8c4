// What to say when no plan fits: the budgets each of which alone, if it were larger, would let one fit. Pure functions.
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

/// Throws Error(refused): by how much `closest` does not fit, every budget of `ways` and how much of it is needed, and the memory table of
/// the first of these plans, or of the closest when no single budget would do.
[[noreturn]] void refuse_plan(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates,
                              std::vector<WayOut> ways, const parallel::Plan& closest);

}  // namespace spillway::app
