// Lists the plans worth trying in ascending order of a closed-form estimate of their step time. The estimate of bytes and time needs no
// Programs, the lists of instructions of a step. The planner then sizes the candidates exactly, one after the other, until one fits. All
// functions are pure.
#pragma once
#include <vector>

#include "trainer/plan/cost_model.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {

struct Candidate {
  parallel::PlanRequest request;
  double seconds = 0;                        // estimated seconds of a step
  std::array<i64, offload::kTiers> bytes{};  // lower bound of the bytes needed, by tier
};

/// Returns the candidates in ascending order of seconds. An option that the user gave has the same value in all
/// candidates. For each option that the user left open there are candidates with every value that may help.
std::vector<Candidate> candidates(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                  const Rates& rates);

}  // namespace spillway::trainer
