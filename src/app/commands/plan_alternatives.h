// What else would fit, for `plan` to show beside what was chosen: the planner's own choices with one flag more, or with less memory. Pure
// functions.
#pragma once
#include <string>
#include <vector>

#include "app/plan/cost_model.h"
#include "app/plan/planner.h"

namespace spillway::app {

struct Alternative {
  std::string flag;  // that makes it so: "--prefetch 1"
  double seconds = 0;
  std::array<i64, offload::kTiers> total{};
};

constexpr size_t kMostAlternatives = 5;

/// At most kMostAlternatives, fastest first; of those with the same places and time one. `request` makes `chosen`, a plan for training,
/// which takes `seconds`.
std::vector<Alternative> alternatives(const parallel::PlanRequest& request, const parallel::Plan& chosen, double seconds,
                                      const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates);

}  // namespace spillway::app
