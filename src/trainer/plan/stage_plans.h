// Makes the plans of a pipeline's ranks. Each rank gets a placement (the tier of each kind of data) that suits its stage. The ZeRO stage,
// the order of micro-batches, prefetch and overlap must be equal on all ranks; they are chosen for the rank that holds the most parameters.
// All functions are pure.
#pragma once
#include "trainer/plan/cost_model.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {

/// Assigns the model's blocks to the pipeline stages as --pipeline-split says. If the option leaves the split open, the stages take as
/// equal times as possible.
void deal_blocks(parallel::PlanRequest& request, const PlacementSettings& wishes, const Rates& rates);

/// Chooses the plan of the pipeline rank `base.scheduling.pipeline.rank`. The plan says in which tier the data of all pipeline ranks'
/// parameter groups and blocks is stored. With a single pipeline rank this is choose_plan().
ChosenPlan choose_stage_plans(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                              const Rates& rates);

/// Returns the plans of all pipeline ranks, by rank. `mine` is this rank's plan, which was made from `request`.
std::vector<parallel::Plan> plans_of_stages(const parallel::PlanRequest& request, const parallel::Plan& mine);
/// Checks that the collectives and messages of all ranks match, including all data-parallel ranks of each stage. The forward
/// Program (list of instructions) is checked, and for training also the training Programs. Throws Error(bug) if they do not match.
void check_meetings(const std::vector<parallel::Plan>& stages);

}  // namespace spillway::trainer
