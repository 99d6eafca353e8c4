// What the first rank chose, as a text that the others make their own plans from: one plan for all, but for the parts each holds.
#pragma once
#include <string>

#include "app/plan/shares.h"
#include "parallel/plan/plan.h"

namespace spillway::app {

std::string to_text(const parallel::Plan& plan, const Shares& shares);
/// Into a request that has the model, the layout, the batch and the rank. Error(bug) when it is not of this model.
void apply_choice(const std::string& text, parallel::PlanRequest& request, Shares& shares);

}  // namespace spillway::app
