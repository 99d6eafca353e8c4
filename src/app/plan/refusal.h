// What to say when no plan fits: the budgets each of which alone, if it were larger, would let one fit, and the flags that would with the
// budgets as they are. Every one was tried. Pure functions.
#pragma once
#include "app/plan/search.h"

namespace spillway::app {

/// Throws Error(refused): by how much the closest plan of `found` does not fit, every budget of its ways and how much of it is needed, what
/// would leave less to hold, and the memory table of the first of these plans, or of the closest when no single budget would do.
[[noreturn]] void refuse_plan(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates,
                              Found found);

/// As a flag takes it, rounded up: "800MiB", "1.3GiB".
std::string at_least(i64 bytes);

}  // namespace spillway::app
