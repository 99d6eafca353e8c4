// Compares the planner's choice with the plans that it would choose if the user gave one flag more, or less memory. The search sizes and
// simulates only a few of the possible plans, and each added flag makes it look at other ones. The cheapest of all these plans is taken,
// and the command `plan` shows the rest beside it. Pure functions.
#pragma once
#include <string>
#include <vector>

#include "trainer/plan/cost_model.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {

struct Alternative {
  std::string flag;  // the added flag: "--prefetch 1"
  double seconds = 0;
  i64 nvme_written_bytes = 0;  // bytes that this rank writes in a step
  std::array<i64, offload::kTiers> total{};
};

constexpr size_t kMostAlternatives = 5;

struct Choice {
  ChosenPlan chosen;
  std::vector<Alternative> others;  // fastest first; plans with equal memory and time appear once
};

/// Calls choose_stage_plans once with `wishes`, and once more for each flag that could be added to them; these further calls keep the ZeRO
/// stage of the first plan, unless the flag is --zero-stage. None of `others` is more than 2 % faster than the chosen plan, and none that
/// takes equally long writes less to nvme. Without training `others` is empty. Throws the errors of choose_stage_plans.
Choice choose_with_alternatives(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                const Rates& rates);

}  // namespace spillway::trainer
