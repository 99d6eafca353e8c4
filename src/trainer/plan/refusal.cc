#include "trainer/plan/refusal.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "trainer/plan/less_to_hold.h"

namespace spillway::trainer {
namespace {

using parallel::Plan;
using parallel::Tier;

// Says how much space the --nvme paths need for all ranks together, if one rank needs `rank_bytes`.
std::string disk_text(i64 rank_bytes, const TierBudgets& budgets, i64 ranks) {
  const i64 needed = rank_bytes * ranks, there = budgets.bytes[2] * ranks;
  return fmt::format("--nvme PATH with room for {}{}", at_least(needed),
                     there > 0 ? fmt::format(" (there is {}; add {})", format_bytes(there), at_least(needed - there)) : "");
}

i64 ranks_of(const parallel::PlanRequest& base) { return i64{base.scheduling.sharding.ranks} * base.scheduling.pipeline.ranks; }

std::string way_out(Tier tier, const Plan& plan, const TierBudgets& budgets, i64 ranks) {
  const std::string needed = at_least(plan.total[static_cast<size_t>(tier)]);
  switch (tier) {
    case Tier::device:
      if (budgets.host_from_device)
        return fmt::format("a node that grants {} of memory", at_least((plan.total[0] + plan.total[1]) * ranks));
      return "--device-memory " + needed;
    case Tier::host:
      return "--host-memory " + needed;
    case Tier::nvme:
      break;
  }
  return disk_text(plan.total[2], budgets, ranks);
}

std::string missing_text(const Plan& plan, const TierBudgets& budgets) {
  const auto over = excess(plan, budgets);
  std::string text;
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const i64 bytes = over[static_cast<size_t>(tier)];
    if (bytes > 0) text += fmt::format("{} {} by {}", text.empty() ? "" : ",", offload::to_string(tier), format_bytes(bytes));
  }
  return text;
}

std::string list_of(const std::vector<LessToHold>& all, const TierBudgets& budgets, i64 ranks) {
  std::string text;
  for (const LessToHold& one : all) {
    text += "\n  " + one.flags;
    if (one.nvme_bytes) text += " and " + disk_text(*one.nvme_bytes, budgets, ranks);
    text += one.changes_numbers ? ": changes the numbers" : ": the same numbers";
  }
  return text;
}

}  // namespace

std::string at_least(i64 bytes) {
  if (bytes <= kGiB) return fmt::format("{}MiB", (bytes + kMiB - 1) / kMiB);
  constexpr i64 kWhole = 100 * kGiB;  // sizes above this are rounded to whole GiB
  if (bytes > kWhole) return fmt::format("{}GiB", (bytes + kGiB - 1) / kGiB);
  const i64 tenths = (bytes * 10 + kGiB - 1) / kGiB;
  return tenths % 10 == 0 ? fmt::format("{}GiB", tenths / 10) : fmt::format("{}.{}GiB", tenths / 10, tenths % 10);
}

void refuse_plan(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates,
                 Found found) {
  const i64 ranks = ranks_of(base);
  std::string text = "[plan] it does not fit:" + missing_text(*found.closest, budgets), list;
  for (const WayOut& way : found.ways) list += "\n  " + way_out(way.tier, way.plan, budgets, ranks);
  const bool disk_alone = !found.ways.empty() && found.ways.front().tier == Tier::nvme;
  if (!disk_alone) {
    if (auto plan = plan_with_a_disk(base, wishes, budgets, rates)) {
      list += "\n  " + way_out(Tier::nvme, *plan, budgets, ranks) + ", and " + way_out(Tier::device, *plan, budgets, ranks);
      found.ways.push_back({Tier::device, std::move(*plan)});
    }
  }
  const std::string less = list_of(less_to_hold(base, wishes, budgets, rates), budgets, ranks);
  const Plan& shown = found.ways.empty() ? *found.closest : found.ways.front().plan;
  text +=
      found.ways.empty() ? ". No single larger budget is enough: raise several" : " at the least. Any one of these makes it fit:" + list;
  if (!less.empty())
    text += (found.ways.empty() ? ", or use an option that needs less memory:" : "\nor use an option that needs less memory:") + less;
  text += fmt::format("\nThe {} plan:\n", found.ways.empty() ? "closest" : "first suggestion's") + memory_table(shown, budgets);
  text.pop_back();
  throw Error(ErrorCode::refused, text);
}

}  // namespace spillway::trainer
