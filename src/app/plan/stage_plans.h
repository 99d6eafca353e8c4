// Makes the plans of a pipeline. Each stage's rank gets what fits it. The ZeRO stage, order, prefetch and overlap must be common to all;
// they are found for the stage that holds most. Pure functions.
#pragma once
#include "app/plan/cost_model.h"
#include "app/plan/planner.h"

namespace spillway::app {

/// Assigns blocks to the pipeline stages, as --pipeline-split says or as evenly by time as possible.
void deal_blocks(parallel::PlanRequest& request, const PlacementSettings& wishes, const Rates& rates);

/// Chooses the plan of rank `base.scheduling.pipeline.rank`, with a placement that serves all pipeline ranks. With a single pipeline rank
/// this is choose_plan.
ChosenPlan choose_stage_plans(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates);

/// Returns the plans of all pipeline ranks, by rank. `request` makes the plan `mine`.
std::vector<parallel::Plan> plans_of_stages(const parallel::PlanRequest& request, const parallel::Plan& mine);
/// Checks that the collectives and messages of all ranks match, including all data-parallel ranks of each stage: in the forward Program,
/// and for training in the other Programs as well. Throws Error(bug).
void check_meetings(const std::vector<parallel::Plan>& stages);

}  // namespace spillway::app
