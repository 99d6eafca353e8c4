// What to say when no plan fits: the budgets each of which alone, if it were larger, would let one fit. Pure functions.
#pragma once
#include "app/cost_model.h"
#include "app/planner.h"

namespace spillway::app {

/// The plan that fits with plenty of one tier and the budgets of the others, and takes least of it: of those tried, since exact sizes are
/// tried for few. Empty when none does.
std::optional<parallel::Plan> plan_with_plenty(parallel::Tier tier, const parallel::PlanRequest& base, const PlanWishes& wishes,
                                               TierBudgets budgets, const Rates& rates);

/// Throws Error(refused): by how much `closest` does not fit, every single budget that would help and how much of it is needed, and the
/// memory table of the first of these plans, or of the closest when no single one would do.
[[noreturn]] void refuse_plan(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates,
                              const parallel::Plan& closest);

}  // namespace spillway::app
