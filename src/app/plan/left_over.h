// What a plan leaves of its budgets holds some groups of what `auto` put into a slower tier, what is moved most for its bytes first, and
// the logits, which cost no copies but a product. Pure functions.
#pragma once
#include <optional>
#include <string>

#include "app/plan/cost_model.h"
#include "app/plan/planner.h"

namespace spillway::app {

struct Fuller {
  parallel::PlanRequest request;
  parallel::Plan plan;
  /// "left-over memory: 214.0 MiB of optimizer state on host rather than nvme: 7.5 s a step instead of 8.1 s"; empty where the gain is
  /// hardly one.
  std::string why;
};
/// Of a plan that fits, made from the request; empty where nothing fits beside it, or where a step would not be faster.
/// Activations: the last blocks, as many as there is room for, neither spill nor run again where `auto` had all of them do so.
std::optional<Fuller> keep_left_over(const parallel::PlanRequest& request, const parallel::Plan& plan, const PlanWishes& wishes,
                                     const TierBudgets& budgets, const Rates& rates);
/// The logits of the last block, from its forward to its backward.
std::optional<Fuller> keep_logits(const parallel::PlanRequest& request, const parallel::Plan& plan, const PlanWishes& wishes,
                                  const TierBudgets& budgets, const Rates& rates);
/// Weights, gradients, state.
std::optional<Fuller> fill_left_over(const parallel::PlanRequest& request, const parallel::Plan& plan, const PlanWishes& wishes,
                                     const TierBudgets& budgets, const Rates& rates);

}  // namespace spillway::app
