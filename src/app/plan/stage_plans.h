// The plan of a pipeline: each stage's rank gets what fits it, and all share what they must: ZeRO stage, order, prefetch and overlap, found
// for the stage that holds most. Pure functions.
#pragma once
#include "app/plan/cost_model.h"
#include "app/plan/planner.h"

namespace spillway::app {

/// Which blocks each stage gets: as --pipeline-split says, or as even as can be by their times.
void deal_blocks(parallel::PlanRequest& request, const PlanWishes& wishes, const Rates& rates);

/// As choose_plan, of rank `base.scheduling.pipeline.rank`, with a placement that serves all pipeline ranks. With one rank it is that.
ChosenPlan choose_stage_plans(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates);

/// Of all pipeline ranks, by rank, where `request` makes the one that is `mine`.
std::vector<parallel::Plan> plans_of_stages(const parallel::PlanRequest& request, const parallel::Plan& mine);
/// The Programs of all ranks, data-parallel ones of each of these stages, meet: forward, and when training the others that can run too.
/// Error(bug).
void check_meetings(const std::vector<parallel::Plan>& stages);

}  // namespace spillway::app
