// Turns flags into a plan that fits. The planner resolves every `auto` of placement, prefetch and recomputation.
// It sizes a plan exactly, by dry runs on the meta device, which has no memory. If no plan fits, it refuses
// before anything is written, with the memory table and the flag that would help. All functions are pure.
#pragma once
#include <optional>
#include <string>

#include "parallel/plan/plan.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// TierBudgets holds the bytes into which a plan must fit.
struct TierBudgets {
  std::array<i64, offload::kTiers> bytes{};  // bytes by tier; the nvme budget is 0 without a scratch path
  bool nvme_is_memory = false;               // true if the nvme tier is a tmpfs, so that its bytes take host memory
  // true if no flag divides the memory between device and host; the host tier then uses the device budget
  bool host_from_device = false;
};

/// ChosenPlan is a plan with the reasons for it, one line per choice. choose_plan() returns the plan with
/// the least predicted cost among those that fit. Options that the user gave are kept. If no plan fits,
/// it throws Error(refused), with the memory table of the best attempt and the flags that would help.
struct ChosenPlan {
  parallel::Plan plan;
  std::vector<std::string> why;
};
struct Rates;
ChosenPlan choose_plan(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates);

/// Returns a table of the planned memory: one line per purpose and one column per tier. The last two lines are the totals and the budgets.
std::string memory_table(const parallel::Plan& plan, const TierBudgets& budgets);

/// Returns the tier of each parameter group under one --place option. The option names a single tier, or gives bytes for each tier. In the
/// second case the groups, in their order, fill one tier after the other.
std::vector<parallel::Tier> assign_tiers(const PlacementWish& wish, const std::vector<i64>& group_bytes);

}  // namespace spillway::trainer
