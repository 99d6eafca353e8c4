// The plans worth trying, cheapest first by a closed estimate of their bytes and their time; no Program is made for it. The planner sizes
// them exactly, one after the other, until one fits. Pure functions.
#pragma once
#include <vector>

#include "app/plan/cost_model.h"
#include "app/plan/planner.h"

namespace spillway::app {

struct Candidate {
  parallel::PlanRequest request;
  double seconds = 0;                        // of a step, estimated
  std::array<i64, offload::kTiers> bytes{};  // at least these are needed
};

/// Every explicit wish is kept; what is left open takes each value that may help. Ascending in seconds.
std::vector<Candidate> candidates(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets,
                                  const Rates& rates);

}  // namespace spillway::app
