// Suggests flags that make a training plan fit without larger budgets. The flags store state in fewer bytes, or compute
// fewer positions at a time. Each suggestion has been tried with the planner's own search. All functions are pure.
#pragma once
#include <string>
#include <vector>

#include "trainer/plan/cost_model.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {

struct LessToHold {
  std::string flags;  // the suggested flags, such as "--moments bf16"
  bool changes_numbers = true;
  std::optional<i64> nvme_bytes;  // set if a disk with so many free bytes is needed as well
};

/// Returns the single flags with which the plan fits. If there are none, returns several flags to be used together,
/// or fewer positions with the disk space that they need. The result is empty without training, or if nothing helps.
std::vector<LessToHold> less_to_hold(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                     const Rates& rates);

}  // namespace spillway::trainer
