// From flags to a plan that fits: resolves every `auto` of placement, prefetch and recomputation, sizes it exactly on the meta device, and
// refuses before anything is written when it does not fit, with the table and the flag that would help. Pure but for reading the wishes.
#pragma once
#include <optional>
#include <string>

#include "app/flags/config.h"
#include "parallel/plan/plan.h"

namespace spillway::app {

/// What a plan must fit into.
struct TierBudgets {
  std::array<i64, offload::kTiers> bytes{};  // nvme 0: no path given
  bool nvme_is_memory = false;               // tmpfs: its bytes come out of the host's
  bool host_from_device = false;             // nobody split the memory: what the host tier needs comes out of the device's
};

struct PlanWishes {
  PlacementWish parameters, gradients, optimizer, activations;
  Recompute recompute = Recompute::automatic;
  OptimizerOverlap overlap = OptimizerOverlap::automatic;
  std::optional<parallel::Order> order;
  std::optional<i64> prefetch;
  std::optional<int> zero_stage;
  std::string pipeline_split = "auto";
  bool explained = true;  // a refusal says what would help

  /// Something shall lie in this tier.
  bool uses(Tier tier) const;
  /// Something may, since it shall or since it was left open.
  bool may_use(Tier tier) const;
};

/// The fastest plan that fits, by estimate; every explicit wish is kept. `why` says what was chosen, a line each.
/// Errors: Error(refused) with the memory table of the best attempt and the flags that would help.
struct ChosenPlan {
  parallel::Plan plan;
  std::vector<std::string> why;
};
struct Rates;
ChosenPlan choose_plan(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates);

/// The table of what lies where: a line a use, a column a tier, totals and budgets last.
std::string memory_table(const parallel::Plan& plan, const TierBudgets& budgets);

/// Tiers of all groups for one wish: one tier, or the tiers filled in order by bytes.
std::vector<parallel::Tier> assign_tiers(const PlacementWish& wish, const std::vector<i64>& group_bytes);

}  // namespace spillway::app
