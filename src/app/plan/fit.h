// Whether a plan, or the estimate of one, fits its budgets. Pure functions.
#pragma once
#include "app/plan/candidates.h"

namespace spillway::app {

/// Bytes over each budget; zeros: the plan fits.
std::array<i64, offload::kTiers> excess(const parallel::Plan& plan, const TierBudgets& budgets);
i64 total_excess(const parallel::Plan& plan, const TierBudgets& budgets);

/// Error(refused) with the table when it does not fit.
void require_room(const parallel::Plan& plan, const TierBudgets& budgets);

/// Even by its estimate, which leaves out little, it does not fit.
bool hopeless(const Candidate& candidate, const TierBudgets& budgets);

}  // namespace spillway::app
