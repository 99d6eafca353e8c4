// Turns flags into a plan that fits. It resolves every `auto` of placement, prefetch and recomputation. The plan is sized exactly, by dry
// runs on the meta device, which has no memory. If no plan fits it refuses before anything is written, with the memory table and the flag
// that would help. Pure functions.
#pragma once
#include <optional>
#include <string>

#include "parallel/plan/plan.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// The bytes that a plan must fit into.
struct TierBudgets {
  std::array<i64, offload::kTiers> bytes{};  // by tier; the nvme budget is 0 without a path
  bool nvme_is_memory = false;               // the nvme tier is a tmpfs, so its bytes take host memory
  bool host_from_device = false;             // no flag divided the memory: the host tier's bytes are taken from the device budget
};

/// A plan with the reasons for it, one line per choice. choose_plan() returns the plan with the least predicted cost among those that fit;
/// options that the user gave are kept. It throws Error(refused), with the memory table of the best attempt and the flags that would help,
/// if no plan fits.
struct ChosenPlan {
  parallel::Plan plan;
  std::vector<std::string> why;
};
struct Rates;
ChosenPlan choose_plan(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates);

/// Returns a table of the planned memory: one line per purpose and one column per tier. The last two lines are the totals and the budgets.
std::string memory_table(const parallel::Plan& plan, const TierBudgets& budgets);

/// Returns the tier of each group under one placement option. The option gives a single tier, or bytes for each tier; in the second case
/// the tiers are filled with groups in order.
std::vector<parallel::Tier> assign_tiers(const PlacementWish& wish, const std::vector<i64>& group_bytes);

}  // namespace spillway::trainer
