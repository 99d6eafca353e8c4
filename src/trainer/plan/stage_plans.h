// Makes the plans of a pipeline's ranks. Each rank gets a placement that suits its stage. The ZeRO stage, order, prefetch and overlap must
// be the same on all ranks; they are chosen for the rank that holds the most parameters. Pure functions.
#pragma once
#include "trainer/plan/cost_model.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {

/// Assigns the model's blocks to the pipeline stages as --pipeline-split says. Without it, the stages take as equal times as possible.
void deal_blocks(parallel::PlanRequest& request, const PlacementSettings& wishes, const Rates& rates);

/// Chooses the plan of the pipeline rank `base.scheduling.pipeline.rank`. Its placement covers the groups and blocks of all pipeline ranks.
/// With a single pipeline rank this is choose_plan().
ChosenPlan choose_stage_plans(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                              const Rates& rates);

/// Returns the plans of all pipeline ranks, by rank. `mine` is this rank's plan, which was made from `request`.
std::vector<parallel::Plan> plans_of_stages(const parallel::PlanRequest& request, const parallel::Plan& mine);
/// Checks that the collectives and messages of all ranks match, including all data-parallel ranks of each stage. It checks the forward
/// Program, and for training also the training Programs. Throws Error(bug) if they do not match.
void check_meetings(const std::vector<parallel::Plan>& stages);

}  // namespace spillway::trainer
