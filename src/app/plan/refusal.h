// Explains that no plan fits: which single budgets would let one fit if they were larger, and which flags would with the budgets as they
// are. Each suggestion has been tried. Pure functions.
#pragma once
#include "app/plan/search.h"

namespace spillway::app {

/// Throws Error(refused). The message says by how much the closest plan of `found` does not fit, which budget would suffice alone and how
/// much of it is needed, and which flags leave less to hold. It ends with the memory table of the first of these plans, or of the closest
/// plan if no single budget would do.
[[noreturn]] void refuse_plan(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates,
                              Found found);

/// Formats bytes for a flag, rounded up: "800MiB", "1.3GiB".
std::string at_least(i64 bytes);

}  // namespace spillway::app
