// Writes the first rank's choice of a plan as text, from which the other ranks make their own plans. So all ranks have one plan and differ
// only in the shards that each holds.
#pragma once
#include <string>

#include "app/plan/shares.h"
#include "parallel/plan/plan.h"

namespace spillway::app {

std::string to_text(const parallel::Plan& plan, const Shares& shares);
/// Puts the choice into a request that has the model, the layout, the batch and the rank already. Throws Error(bug) if the choice is for
/// another model.
void apply_choice(const std::string& text, parallel::PlanRequest& request, Shares& shares);

}  // namespace spillway::app
