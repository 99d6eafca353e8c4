// Enumerates the plans worth trying, cheapest first by a closed-form estimate of their bytes and time, without making their Programs (the
// lists of instructions of a step). The planner then sizes them exactly, one after the other, until one fits. Pure functions.
#pragma once
#include <vector>

#include "trainer/plan/cost_model.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {

struct Candidate {
  parallel::PlanRequest request;
  double seconds = 0;                        // estimated, per step
  std::array<i64, offload::kTiers> bytes{};  // a lower bound of the bytes needed
};

/// Returns the candidates in ascending order of seconds. An option that the user gave has the same value in all candidates. For each option
/// that was left open there are candidates with all values that may help.
std::vector<Candidate> candidates(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                  const Rates& rates);

}  // namespace spillway::trainer
