// The flags with which a training plan that does not fit would, its budgets as they are: state kept in fewer bytes, fewer positions at a
// time. Each is tried by the planner's own search. Pure functions.
#pragma once
#include <string>
#include <vector>

#include "app/plan/cost_model.h"
#include "app/plan/planner.h"

namespace spillway::app {

struct LessToHold {
  std::string flags;  // "--moments bf16"
  bool changes_numbers = true;
  std::optional<i64> nvme_bytes;  // a disk with so much room is needed beside them
};

/// Single flags that do alone; where none does, several together, and fewer positions with the disk that they need. Empty without
/// training, or where nothing of this helps.
std::vector<LessToHold> less_to_hold(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets,
                                     const Rates& rates);

}  // namespace spillway::app
