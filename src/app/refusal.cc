#include "app/refusal.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/candidates.h"
#include "app/fit.h"
#include "base/error.h"
#include "base/units.h"

namespace spillway::app {
namespace {

using parallel::Plan;
using parallel::Tier;

constexpr i64 kPlentyBytes = i64{1} << 50;
// Sized exactly, of those that would do by their estimates: first the ones that take least of the tier, then the ones that take most and
// leave the others most room.
constexpr size_t kMostSized = 12;

// As a flag takes it, rounded up: whoever follows the advice must not be refused again.
std::string at_least(i64 bytes) { return fmt::format("{}MiB", (bytes + kMiB - 1) / kMiB); }

std::string way_out(Tier tier, const Plan& plan, const TierBudgets& budgets) {
  const std::string needed = at_least(plan.total[static_cast<size_t>(tier)]);
  switch (tier) {
    case Tier::device:
      if (budgets.host_from_device) return fmt::format("a node that grants {} of memory", at_least(plan.total[0] + plan.total[1]));
      return "--device-memory " + needed;
    case Tier::host:
      return "--host-memory " + needed;
    case Tier::nvme:
      break;
  }
  const i64 there_bytes = budgets.bytes[2];
  return fmt::format("--nvme PATH with room for {}{}", needed,
                     there_bytes > 0 ? fmt::format(" (there is {})", format_bytes(there_bytes)) : "");
}

}  // namespace

std::optional<Plan> plan_with_plenty(Tier tier, const parallel::PlanRequest& base, const PlanWishes& wishes, TierBudgets budgets,
                                     const Rates& rates) {
  const auto t = static_cast<size_t>(tier);
  budgets.bytes[t] = kPlentyBytes;
  std::vector<Candidate> all = candidates(base, wishes, budgets, rates);
  std::erase_if(all, [&](const Candidate& c) { return hopeless(c, budgets); });
  std::stable_sort(all.begin(), all.end(), [t](const Candidate& a, const Candidate& b) { return a.bytes[t] < b.bytes[t]; });
  std::optional<Plan> least;
  const auto try_one = [&](const Candidate& c) {
    Plan plan = make_plan(c.request);
    if (total_excess(plan, budgets) == 0 && (!least || plan.total[t] < least->total[t])) least = std::move(plan);
  };
  for (size_t i = 0; i < all.size() && i < kMostSized; ++i) try_one(all[i]);
  for (size_t i = 0; !least && i + kMostSized < all.size() && i < kMostSized; ++i) try_one(all[all.size() - 1 - i]);
  return least;
}

namespace {

// Without a disk little can help; with one, what the device must hold at least.
void add_disk_and_device(std::string& ways, std::optional<Plan>& shown, const parallel::PlanRequest& base, const PlanWishes& wishes,
                         TierBudgets budgets, const Rates& rates) {
  if (shown && shown->total[2] > 0) return;  // a disk alone would do
  budgets.bytes[2] = kPlentyBytes;
  std::optional<Plan> plan = plan_with_plenty(Tier::device, base, wishes, budgets, rates);
  if (!plan || plan->total[2] == 0) return;
  ways += "\n  " + way_out(Tier::nvme, *plan, {}) + " and " + way_out(Tier::device, *plan, budgets) + (shown ? "" : " (the table)");
  if (!shown) shown = std::move(plan);
}

}  // namespace

void refuse_plan(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates,
                 const Plan& closest) {
  const auto over = excess(closest, budgets);
  std::string text = "[plan] it does not fit:";
  std::optional<Plan> shown;
  std::string ways;
  for (const Tier tier : {Tier::nvme, Tier::device, Tier::host}) {
    if (tier == Tier::host && budgets.host_from_device) continue;
    std::optional<Plan> plan = plan_with_plenty(tier, base, wishes, budgets, rates);
    if (!plan) continue;
    ways += fmt::format("\n  {}{}", way_out(tier, *plan, budgets), shown ? "" : " (the table)");
    if (!shown) shown = std::move(plan);
  }
  if (budgets.bytes[2] == 0) add_disk_and_device(ways, shown, base, wishes, budgets, rates);
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const i64 bytes = over[static_cast<size_t>(tier)];
    if (bytes > 0) text += fmt::format(" {} by {}", offload::to_string(tier), format_bytes(bytes));
  }
  if (shown) {
    text += " at the least.\n" + memory_table(*shown, budgets) + "Any one of these makes it fit:" + ways;
  } else {
    text += ". The closest plan needs:\n" + memory_table(closest, budgets) + "No single budget would do: raise several";
  }
  if (base.training) {
    text += "\nOr less to hold: a smaller --micro-batch-size or --sequence-length";
    if (wishes.recompute == Recompute::none) text += ", --recompute block";
  }
  throw Error(ErrorCode::refused, text + ".");
}

}  // namespace spillway::app
