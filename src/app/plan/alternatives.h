// The planner's choice beside the choices it makes with one flag more, or with less memory. The search sizes and simulates few of the
// plans that there are; each such flag makes it look at others, so the cheapest of all these plans is the one that is taken, and the rest
// is what `plan` shows beside it. Pure functions.
#pragma once
#include <string>
#include <vector>

#include "app/plan/cost_model.h"
#include "app/plan/planner.h"

namespace spillway::app {

struct Alternative {
  std::string flag;  // that makes it so: "--prefetch 1"
  double seconds = 0;
  i64 nvme_written_bytes = 0;  // of a step, by this rank
  std::array<i64, offload::kTiers> total{};
};

constexpr size_t kMostAlternatives = 5;

struct Choice {
  ChosenPlan chosen;
  std::vector<Alternative> others;  // fastest first; of those with the same places and time one
};

/// As choose_stage_plans, which is asked once more for each flag that could be added to the wishes, at the ZeRO stage chosen first. None of
/// `others` is more than 2 % faster than the chosen plan, and none that takes as long writes less to nvme. Without training there are none.
/// Errors: those of choose_stage_plans.
Choice choose_with_alternatives(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets,
                                const Rates& rates);

}  // namespace spillway::app
