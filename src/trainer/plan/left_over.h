// Uses the memory that a plan leaves unused. Parameter groups that `auto` placed on a slower tier move to a faster one, those with the most
// traffic per byte first. The logits are kept from forward to backward, which saves the backward a matrix product. All functions are pure.
#pragma once
#include <optional>
#include <string>

#include "trainer/plan/cost_model.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {

struct Fuller {
  parallel::PlanRequest request;
  parallel::Plan plan;
  /// The report for the user, such as "left-over memory: 214.0 MiB of optimizer state on host rather than
  /// in a slower tier: 7.5 s a step instead of 8.1 s". It is empty if the gain is too small to mention.
  std::string why;
};
/// Used if `auto` made all blocks spill or recompute their activations: keeps the activations of as many of the last blocks as the budget
/// has room for. For this function and the two below, `plan` must fit and be made from `request`; they return an empty text if nothing more
/// fits, or if a step would not be faster.
std::optional<Fuller> keep_left_over(const parallel::PlanRequest& request, const parallel::Plan& plan, const PlacementSettings& wishes,
                                     const TierBudgets& budgets, const Rates& rates);
/// Keeps the logits of the last block from its forward to its backward.
std::optional<Fuller> keep_logits(const parallel::PlanRequest& request, const parallel::Plan& plan, const PlacementSettings& wishes,
                                  const TierBudgets& budgets, const Rates& rates);
/// Moves weights, gradients and optimizer state to faster tiers.
std::optional<Fuller> fill_left_over(const parallel::PlanRequest& request, const parallel::Plan& plan, const PlacementSettings& wishes,
                                     const TierBudgets& budgets, const Rates& rates);

}  // namespace spillway::trainer
