// Uses the memory that a plan leaves unused. Groups that `auto` placed on a slower tier move to a faster one, those with the most traffic
// per byte first. The logits are kept, which saves no copies but saves the backward a matrix product. Pure functions.
#pragma once
#include <optional>
#include <string>

#include "trainer/plan/cost_model.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {

struct Fuller {
  parallel::PlanRequest request;
  parallel::Plan plan;
  /// The report for the user: "left-over memory: 214.0 MiB of optimizer state on host rather than in a slower tier: 7.5 s a step instead of
  /// 8.1 s". Empty if the gain is too small to mention.
  std::string why;
};
/// If `auto` made all blocks spill or recompute their activations, keeps those of as many of the last blocks as there is room for. For this
/// function and the two below, `plan` must fit and be made from `request`. They return empty if nothing more fits, or if a step would not
/// be faster.
std::optional<Fuller> keep_left_over(const parallel::PlanRequest& request, const parallel::Plan& plan, const PlacementSettings& wishes,
                                     const TierBudgets& budgets, const Rates& rates);
/// Keeps the logits of the last block from its forward to its backward.
std::optional<Fuller> keep_logits(const parallel::PlanRequest& request, const parallel::Plan& plan, const PlacementSettings& wishes,
                                  const TierBudgets& budgets, const Rates& rates);
/// Moves weights, gradients and optimizer state to faster tiers.
std::optional<Fuller> fill_left_over(const parallel::PlanRequest& request, const parallel::Plan& plan, const PlacementSettings& wishes,
                                     const TierBudgets& budgets, const Rates& rates);

}  // namespace spillway::trainer
