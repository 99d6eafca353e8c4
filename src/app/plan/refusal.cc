#include "app/plan/refusal.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/plan/candidates.h"
#include "app/plan/fit.h"
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

// The plan that takes least of the tier, of those tried.
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

// Without a disk little may help; with one, what the device must hold at least.
std::optional<Plan> with_a_disk_too(const parallel::PlanRequest& base, const PlanWishes& wishes, TierBudgets budgets, const Rates& rates) {
  budgets.bytes[2] = kPlentyBytes;
  std::optional<Plan> plan = plan_with_plenty(Tier::device, base, wishes, budgets, rates);
  return plan && plan->total[2] > 0 ? std::move(plan) : std::nullopt;
}

std::string missing_text(const Plan& plan, const TierBudgets& budgets) {
  const auto over = excess(plan, budgets);
  std::string text;
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const i64 bytes = over[static_cast<size_t>(tier)];
    if (bytes > 0) text += fmt::format(" {} by {}", offload::to_string(tier), format_bytes(bytes));
  }
  return text;
}

}  // namespace

std::vector<WayOut> ways_out(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates) {
  std::vector<WayOut> ways;
  for (const Tier tier : {Tier::nvme, Tier::device, Tier::host}) {
    if (tier == Tier::host && budgets.host_from_device) continue;
    if (auto plan = plan_with_plenty(tier, base, wishes, budgets, rates)) ways.push_back({tier, std::move(*plan)});
  }
  return ways;
}

void refuse_plan(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets, const Rates& rates,
                 std::vector<WayOut> ways, const Plan& closest) {
  std::string text = "[plan] it does not fit:" + missing_text(closest, budgets), list;
  for (const WayOut& way : ways) list += "\n  " + way_out(way.tier, way.plan, budgets);
  const bool disk_alone = !ways.empty() && ways.front().tier == Tier::nvme;
  if (budgets.bytes[2] == 0 && !disk_alone) {
    if (auto plan = with_a_disk_too(base, wishes, budgets, rates)) {
      list += "\n  " + way_out(Tier::nvme, *plan, {}) + " and " + way_out(Tier::device, *plan, budgets);
      ways.push_back({Tier::device, std::move(*plan)});
    }
  }
  if (ways.empty()) {
    text += ". The closest plan needs:\n" + memory_table(closest, budgets) + "No single budget would do: raise several";
  } else {
    text += " at the least. Any one of these makes it fit (the table is the first one's):" + list + "\n" +
            memory_table(ways.front().plan, budgets);
    text.pop_back();
  }
  if (base.training) {
    text += "\nOr less to hold: a smaller --micro-batch-size or --sequence-length";
    if (wishes.recompute == Recompute::none) text += ", --recompute block";
  }
  throw Error(ErrorCode::refused, text + ".");
}

}  // namespace spillway::app
