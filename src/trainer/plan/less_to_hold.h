// Suggests flags that make a training plan fit without raising its budgets. The flags store state in fewer bytes, or compute fewer
// positions at a time. Each suggestion has been tried with the planner's own search. Pure functions.
#pragma once
#include <string>
#include <vector>

#include "trainer/plan/cost_model.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {

struct LessToHold {
  std::string flags;  // such as "--moments bf16"
  bool changes_numbers = true;
  std::optional<i64> nvme_bytes;  // set if a disk with this much room is needed as well
};

/// Returns the single flags that suffice alone. If there are none, returns several flags together, or fewer positions with the disk that
/// they need. Empty without training, or if nothing helps.
std::vector<LessToHold> less_to_hold(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                     const Rates& rates);

}  // namespace spillway::trainer
