// Compares the plan that the planner chooses with those that it would choose if the user gave one more flag or less memory. The planner's
// search examines only a few of the possible plans, and each added flag makes it examine other ones. The plan of least cost is chosen, and
// the command `plan` lists the other plans. All functions are pure.
#pragma once
#include <string>
#include <vector>

#include "trainer/plan/cost_model.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {

struct Alternative {
  std::string flag;  // the added flag, such as "--prefetch 1"
  double seconds = 0;
  i64 nvme_written_bytes = 0;  // bytes that this rank writes to nvme in a step
  std::array<i64, offload::kTiers> total{};
};

constexpr size_t kMostAlternatives = 5;

struct Choice {
  ChosenPlan chosen;
  std::vector<Alternative> others;  // fastest first; of plans with equal memory and time only one is listed
};

/// Chooses a plan and returns it with the plans that one more flag would give. Calls choose_stage_plans once with `wishes`, and once more
/// for each flag that could be added to `wishes`. The further calls keep the ZeRO stage of the first plan, unless the added flag is
/// --zero-stage. The result's `others` holds no plan that is more than 2 % faster than the chosen plan, and none that takes equally long
/// and writes less to nvme. If `base` is a plan for validation or generation, without training, `others` is empty. Throws the errors of
/// choose_stage_plans.
Choice choose_with_alternatives(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                const Rates& rates);

}  // namespace spillway::trainer
