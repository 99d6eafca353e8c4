// Writes the error message for the case that no plan fits. The message names each budget with which a plan would fit if that budget alone
// were larger. It also names the flags with which a plan would fit in the present budgets. Each suggestion has been tried. All functions
// are pure.
#pragma once
#include "trainer/plan/search.h"

namespace spillway::trainer {

/// Throws Error(refused). The message says by how much the closest plan of `found` does not fit. It lists each budget that would be
/// enough if that budget alone were raised, with the bytes needed, and the flags that need less memory. It ends with the memory
/// table of the first suggested plan. If raising a single budget is never enough, it ends with the memory table of the closest plan.
[[noreturn]] void refuse_plan(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                              const Rates& rates, Found found);

/// Formats bytes for a flag, rounded up: "800MiB", "1.3GiB".
std::string at_least(i64 bytes);

}  // namespace spillway::trainer
